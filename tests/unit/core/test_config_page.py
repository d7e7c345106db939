"""docs/configuration.md says what the options say."""

from pathlib import Path

import pytest

from tidegate.core.config import OPTIONS, WITHOUT_EFFECT

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


@pytest.mark.parametrize("key", OPTIONS)
def test_every_option_stands_in_the_page_with_its_default(key):
    option = OPTIONS[key]
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{key}` |")]
    default = "" if option.default in (None, {}, ()) else f"`{option.format(option.default)}`"
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert cells[2] == default
    assert cells[3] == option.description
    assert cells[4].rstrip(" |") == ", ".join(f"`{older}`" for older in option.older_keys)


def test_the_page_knows_no_other_key():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {line.split("`")[1] for line in lines} - {*OPTIONS, *WITHOUT_EFFECT} == set()
