import functools
import json

import pytest

from tidegate.core.errors import ExternalError, UserFunctionError
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.operators.user_code import UserCode, user_traceback
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import Types


def failure_of(function, record):
    harness = OperatorHarness(MapOperator(function))
    with harness, pytest.raises(UserFunctionError) as raised:
        harness.process([record])
    return raised.value


def parse(line):
    return json.loads(line)


def test_the_traceback_begins_with_the_users_frame_and_has_none_of_ours():
    trace = failure_of(parse, "{").args[4]
    assert trace.startswith("Traceback (most recent call last):\n")
    frames = [line for line in trace.splitlines() if line.startswith('  File "')]
    assert frames[0].endswith("in parse")
    assert "tidegate/operators" not in trace
    assert failure_of(parse, "{").cause.startswith("json.decoder.JSONDecodeError")


def test_a_builtin_without_frames_gives_the_exception_alone():
    assert failure_of(int, "x").args[4] == (
        "ValueError: invalid literal for int() with base 10: 'x'\n"
    )


def test_the_cause_of_the_users_exception_is_shown_too():
    def convert(value):
        try:
            return int(value)
        except ValueError as error:
            raise RuntimeError("no number") from error

    trace = failure_of(convert, "x").args[4]
    assert "direct cause" in trace
    assert trace.rstrip().endswith("RuntimeError: no number")


def test_the_record_is_shortened():
    shown = failure_of(int, "9" * 1000 + "x").args[3]
    assert len(shown) == 200


def test_a_record_whose_repr_raises_does_not_hide_the_failure():
    class Shy:
        def __repr__(self):
            raise ValueError

    def explode(record):
        raise KeyError("why")

    failure = failure_of(explode, Shy())
    assert failure.cause == "KeyError: 'why'"
    assert failure.args[3] == "<Shy whose repr raised ValueError>"


def test_an_error_of_the_surroundings_stays_what_it_is():
    lost = ExternalError("the disk is full")

    def write(record):
        raise lost

    harness = OperatorHarness(MapOperator(write), copy=False)
    with harness, pytest.raises(ExternalError, match="the disk is full"):
        harness.process([1])


class FailsToOpen(MapFunction):
    closed = False

    def open(self, runtime_context):
        raise OSError("no database")

    def map(self, value):
        return value

    def close(self):
        FailsToOpen.closed = True


def test_a_function_that_fails_to_open_names_the_operator_and_is_not_closed():
    with pytest.raises(UserFunctionError, match="OSError: no database") as failure:
        OperatorHarness(MapOperator(FailsToOpen()), name="Lookup", parallelism=3, subtask=2)
    assert failure.value.args[0] == "Lookup"
    assert failure.value.args[2] == "(3/3)"
    assert failure.value.args[3] is None
    assert not FailsToOpen.closed


class FailsToClose(FailsToOpen):
    def open(self, runtime_context):
        pass

    def close(self):
        raise OSError("already gone")


def test_a_function_that_fails_to_close_names_the_operator():
    harness = OperatorHarness(MapOperator(FailsToClose()))
    with pytest.raises(UserFunctionError, match="OSError: already gone"):
        harness.close()
    harness.close()


class WantsState(FailsToOpen):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))


def test_keyed_state_on_a_stream_without_keys_tells_the_way_out():
    with pytest.raises(UserFunctionError) as failure:
        OperatorHarness(MapOperator(WantsState()), name="Count")
    assert failure.value.cause.endswith(
        "operator 'Count' uses the state 'seen', but its stream has no key: call key_by() first"
    )


def test_callables_of_any_kind_are_called():
    class Adder:
        def __call__(self, value):
            return value + 2

    for function in (functools.partial(pow, 2), Adder(), str, [10, 20, 30].__getitem__):
        with OperatorHarness(MapOperator(function)) as harness:
            harness.process([1])
        assert harness.output == [function(1)]


def test_a_failure_of_the_next_operator_is_not_attributed_to_this_one():
    class Downstream:
        def emit(self, batch):
            raise UserFunctionError("Next", None, "(1/1)", "2", "ValueError: from the next\n")

    harness = OperatorHarness(MapOperator(lambda x: 1 // x), name="This")
    harness.operator.output = Downstream()
    with pytest.raises(UserFunctionError, match="from the next"):
        harness.process([1, 0])


def test_user_traceback_keeps_our_frames_below_the_users():
    harness = OperatorHarness(MapOperator(str))

    def misuse():
        UserCode(harness.context).call_until_failure(None, None)

    with pytest.raises(TypeError) as raised:
        misuse()
    trace = user_traceback(raised.value)
    assert "in misuse" in trace
    assert "in call_until_failure" in trace
