import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.operators.functions import CoFlatMapFunction, CoProcessFunction, OutputTag
from tidegate.operators.two_inputs.co import CoFlatMapOperator, CoProcessOperator
from tidegate.testing.harness import OperatorHarness


class Signs(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield -value


class Allowed(CoFlatMapFunction):
    """Records of the first input that the second has named before."""

    def open(self, runtime_context):
        self.names = set()

    def flat_map1(self, value):
        if value in self.names:
            yield value

    def flat_map2(self, value):
        self.names.add(value)


class Routed(CoProcessFunction):
    side = OutputTag("second")

    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield self.side, (value, ctx.timer_service().current_processing_time())


def test_each_input_has_its_own_method():
    with OperatorHarness(CoFlatMapOperator(Signs())) as harness:
        harness.process([1, 2])
        harness.process([3], input_index=1)
    assert harness.output == [1, 2, -3]


def test_both_inputs_share_the_function():
    with OperatorHarness(CoFlatMapOperator(Allowed())) as harness:
        harness.process(["a"])
        harness.process(["a", "b"], input_index=1)
        harness.process(["a", "c", "b"])
    assert harness.output == ["a", "b"]


def test_co_process_has_side_outputs_and_the_clock():
    with OperatorHarness(CoProcessOperator(Routed())) as harness:
        harness.clock.advance(2)
        harness.process([1])
        harness.process([7], input_index=1)
    assert harness.output == [1]
    assert harness.side_output("second") == [(7, 2000)]


def test_a_failure_names_the_record_of_its_input():
    with OperatorHarness(CoFlatMapOperator(Signs())) as harness:
        with pytest.raises(UserFunctionError) as failure:
            harness.process([1, "x"], input_index=1)
        assert harness.output == [-1]
    assert failure.value.args[3] == "'x'"


@pytest.mark.parametrize("operator", [CoFlatMapOperator, CoProcessOperator])
def test_a_plain_function_is_refused(operator):
    with pytest.raises(TypeError, match="needs a Co"):
        operator(len)
