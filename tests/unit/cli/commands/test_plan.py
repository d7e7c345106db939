"""`tidegate plan`: what becomes of a savepoint in a changed program, for people and for CI."""

import json

import pytest
from typer.testing import CliRunner

from tests.savepoints import stored, use
from tidegate.cli.main import app
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

PROGRAM = """
from tidegate import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor

class Accounts(KeyedProcessFunction):
    def open(self, runtime_context):
        self.account = runtime_context.get_state(ValueStateDescriptor("account", {type}))

    def process_element(self, value, ctx):
        raise AssertionError("nothing runs")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
print("what a program prints is not for those who read the plan")
records = env.from_collection([("a", 1)]).uid("records")
records.key_by(lambda pair: pair[0]).process(Accounts()).name("Accounts").uid("{uid}").print()
env.execute()
"""
SAME = 'Types.ROW_NAMED(["total"], [Types.LONG()])'
MORE = (
    'Types.ROW_NAMED(["total", "currency"], [Types.LONG(), Types.STRING()], '
    'defaults={"currency": "EUR"})'
)
OTHER = 'Types.ROW_NAMED(["total"], [Types.DOUBLE()])'


@pytest.fixture
def savepoint(tmp_path):
    declared = ValueStateDescriptor("account", Types.ROW_NAMED(["total"], [Types.LONG()]))

    def fill(backend):
        state = backend.value_state(declared)
        for number in range(20):
            if use(backend, f"key {number}"):
                state.update(Row(total=number))

    return str(stored(tmp_path / "savepoint", {"accounts": fill}))


@pytest.fixture
def planned(savepoint, tmp_path):
    def run(*options, type=SAME, uid="accounts"):
        file = tmp_path / "job.py"
        file.write_text(PROGRAM.format(type=type, uid=uid))
        return CliRunner().invoke(app, ["plan", *options, savepoint, str(file)])

    return run


def document(done):
    return json.loads(done.stdout)


def state_of(plan, uid="accounts"):
    [operator] = [o for o in plan["operators"] if o["uid"] == uid]
    [state] = operator["states"]
    return state


def test_the_same_type_is_restored(planned):
    done = planned("--json")
    assert done.exit_code == 0, done.output
    assert document(done)["fits"] is True
    assert state_of(document(done))["fate"] == "restored"


def test_a_type_with_a_new_field_is_converted(planned):
    done = planned("--json", type=MORE)
    assert done.exit_code == 0, done.output
    state = state_of(document(done))
    assert (state["fate"], state["added"]) == ("converted", ["currency = 'EUR'"])
    shown = planned(type=MORE)
    assert shown.exit_code == 0
    assert "converted" in shown.output
    assert "It fits." in shown.output


def test_another_type_is_refused_with_the_reason(planned):
    done = planned("--json", type=OTHER)
    assert done.exit_code == 1
    plan = document(done)
    assert plan["fits"] is False
    assert state_of(plan)["fate"] == "changed type"
    [reason] = [o for operator in plan["operators"] for o in operator["obstacles"]]
    assert "field 'total' was Long and is Double now" in reason
    assert planned("--allow-non-restored", type=OTHER).exit_code == 1


def test_state_that_nobody_claims_is_a_fault_unless_it_is_allowed(planned):
    done = planned("--json", uid="others")
    assert done.exit_code == 1
    assert document(done)["bytes-not-restored"] > 0
    assert planned("--allow-non-restored", uid="others").exit_code == 0
