"""Messages that are pickled faster look the same to every Python."""

import pickle
from dataclasses import dataclass

import pytest

from tidegate.protocol.pickles import quickly_pickled


@dataclass(frozen=True, slots=True)
class Usual:
    name: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class UsualSingle:
    names: tuple[str, ...]


@pytest.mark.parametrize("usual", [Usual("a"), Usual("b", 7), UsualSingle(("a", "b"))])
def test_a_message_is_pickled_as_before_and_comes_back_equal(usual, monkeypatch):
    cls = type(usual)
    before = pickle.dumps(usual, protocol=5)
    monkeypatch.setattr(cls, "__getstate__", cls.__getstate__)
    monkeypatch.setattr(cls, "__setstate__", cls.__setstate__)
    quickly_pickled(cls)
    assert pickle.dumps(usual, protocol=5) == before
    assert pickle.loads(before) == usual
