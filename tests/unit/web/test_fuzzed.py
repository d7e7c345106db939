"""Every path is asked at random, from what the OpenAPI document says and against it."""

import random

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.effort import examples
from tests.jobs import on_disk
from tests.programs import PATIENCE, wait_until
from tests.served_jobs import TOKEN
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.web.application import Application
from tidegate.web.operations import Operations
from tidegate.web.served_jobs import ServedJobs

pytestmark = pytest.mark.slow
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
CREDENTIALS = {"authorization": f"Bearer {TOKEN}"}
DECLARED = [
    each.said for each in Application(ServedJobs(), Operations(), RestSettings(), TOKEN).endpoints
]
ORDERS = [
    pytest.param(said.method, said.path, id=f"{said.method} {said.path}")
    for said in DECLARED
    if said.method != "GET"
]
ENDLESS = "/tidegate/events"
READING = [said.path for said in DECLARED if said.method == "GET" and said.path != ENDLESS]
REAL_QUERIES = {
    # Few of the numbers that the document allows suit a job.
    "/jobs/{jobid}/rescaling": {"parallelism": 2},
    # A profile takes its time.
    "/jobs/{jobid}/vertices/{vertexid}/flamegraph": {"subtaskindex": 99},
}
REFUSED_HERE = (
    "/savepoint-disposal",
    "/tidegate/",
    "/jobmanager/log",
    "/jobmanager/stdout",
    "/jobs/{jobid}/vertices/{vertexid}/flamegraph",
    "/jobs/{jobid}/rescaling/",
    "/jobs/{jobid}/rescales/details/",
)
"""Paths that need an owner, a file, a rescale, or time to answer otherwise."""


def real_ids(served):
    """With which paths lead to something."""
    done = served.order("/checkpoints")
    return {
        "jobid": served.id,
        "vertexid": served.of_job().document["vertices"][1]["id"],
        "checkpointid": done["checkpointId"],
        "subtaskindex": 1,
        "taskmanagerid": f"{served.id}-slot-1",
        "/checkpoints/": served.of_job("/checkpoints", method="POST").document["request-id"],
        "/savepoints/": served.of_job("/savepoints", method="POST").document["request-id"],
    }


def ask_at_random(served, ids, schema, method, path, credentials):
    """Well-formed requests and others; returns the statuses of the answers."""
    known = {key: value for key, value in ids.items() if f"{{{key}}}" in path}
    triggers = [ids[kind] for kind in ("/checkpoints/", "/savepoints/") if kind in path]
    if triggers and "{triggerid}" in path:
        known["triggerid"] = triggers[0]
    choices, seen = random.Random(path), set()

    def send(case, mode):
        if not seen or choices.random() < 0.7:
            case.path_parameters = {**(case.path_parameters or {}), **known}
        if mode is GenerationMode.POSITIVE or path.endswith("flamegraph"):
            case.query = {**(case.query or {}), **REAL_QUERIES.get(path, {})}
        response = case.call(base_url=served.server.url, headers=credentials, timeout=PATIENCE)
        case.validate_response(response, checks=CHECKS)
        seen.add(response.status_code)

    for mode in GenerationMode:
        cases = given(case=schema[path][method].as_strategy(mode), mode=st.just(mode))
        try:
            examples(3, database=None, suppress=HealthCheck)(cases(send))()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # there is nothing that could be wrong
    return seen


def described(served):
    return schemathesis.openapi.from_dict(served.ask("/openapi.json").document)


@pytest.mark.parametrize(("method", "path"), ORDERS)
def test_no_order_makes_the_server_fail_or_answer_otherwise(serve, tmp_path, method, path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(20)
    ids = real_ids(served)
    seen = ask_at_random(served, ids, described(served), method, path, CREDENTIALS)
    if not path.startswith(REFUSED_HERE):
        assert seen & {200, 202}
    wait_until(lambda: served.job.status() is not JobStatus.FAILING)
    assert served.job.status() is not JobStatus.FAILED


def test_no_question_makes_the_server_fail_or_answer_otherwise(serve, tmp_path):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(20)
    ids, schema, owner = real_ids(served), described(served), served.as_owner()
    for path in READING:
        ids["checkpointid"] = served.of_job("/checkpoints").document["latest"]["completed"]["id"]
        seen = ask_at_random(served, ids, schema, "GET", path, owner)
        if not path.startswith(REFUSED_HERE):
            assert 200 in seen, path
    assert served.job.status() is JobStatus.RUNNING
