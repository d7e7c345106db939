"""Every program computes on the cluster what the interpreter computes with plain lists."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.programs import PATIENCE, graph_of, settings_of
from tests.properties.random_programs import INVOCATIONS, Interpreter, random_programs
from tidegate.testing.mini_cluster import run


def run_program(program, slice_records):
    INVOCATIONS.clear()
    graph = graph_of(
        *program.sinks.values(), parallelism=program.parallelism, chaining=program.chaining
    )
    handle = run(graph, settings_of({"tidegate.step.max-records": slice_records}))
    handle.result(PATIENCE)
    return {name: list(handle.collected(name, program.format_of(name))) for name in program.sinks}


@pytest.mark.slow
@given(random_programs(), st.sampled_from([1, 3, 1000]))
@examples(25)
def test_a_program_computes_what_the_interpreter_says(program, slice_records):
    results = run_program(program, slice_records)
    reference = Interpreter(program.parallelism)
    for name, sink in program.sinks.items():
        expected = reference.arriving(sink, sink.inputs[0])
        if expected.is_ordered and reference.width(sink) == 1:
            assert results[name] == expected.records, name
        else:
            assert Counter(results[name]) == Counter(expected.records), name
    # However many read a stream, its operator runs once.
    assert reference.calls == INVOCATIONS
