"""Every path is asked at random, from what the OpenAPI document says and against it."""

import random

import pytest
import schemathesis
from hypothesis import HealthCheck, given
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.effort import examples
from tests.jobs import on_disk
from tests.programs import wait_until
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
OPERATIONS = [
    pytest.param(
        endpoint.said.method,
        endpoint.said.path,
        mode,
        id=f"{endpoint.said.method} {endpoint.said.path} {mode.value}",
    )
    for endpoint in Application(ServedJobs(), Operations(), RestSettings(), TOKEN).endpoints
    for mode in GenerationMode
    if endpoint.said.path != "/tidegate/events"
    if mode is GenerationMode.POSITIVE or "{" in endpoint.said.path or endpoint.body is not None
]
REAL_QUERIES = {"/jobs/{jobid}/rescaling": {"parallelism": 2}}
"""Few of the numbers that the document allows suit a job."""


def real_ids(served, path):
    """With which the path leads to something."""
    done = served.order("/checkpoints")
    if "/rescaling/" in path:
        asked = served.of_job("/rescaling?parallelism=2", method="PATCH")
        return {"jobid": served.id, "triggerid": asked.document["request-id"]}
    kind = "/checkpoints" if "/checkpoints/" in path else "/savepoints"
    trigger = served.of_job(kind, method="POST").document["request-id"]
    ids = {
        "jobid": served.id,
        "vertexid": served.of_job().document["vertices"][1]["id"],
        "checkpointid": done["checkpointId"],
        "triggerid": trigger,
    }
    return {key: value for key, value in ids.items() if f"{{{key}}}" in path}


@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
def test_no_request_makes_the_server_fail_or_answer_otherwise(serve, tmp_path, method, path, mode):
    served = serve(on_disk(tmp_path / "checkpoints"))
    served.let(20)
    ids = real_ids(served, path)
    schema = schemathesis.openapi.from_dict(served.ask("/openapi.json").document)
    operation = schema[path][method]
    choices = random.Random(path)

    @examples(8, database=None, suppress=HealthCheck)
    @given(case=operation.as_strategy(mode))
    def ask(case):
        if choices.random() < 0.7:
            case.path_parameters = {**(case.path_parameters or {}), **ids}
        if mode is GenerationMode.POSITIVE and choices.random() < 0.5:
            case.query = {**(case.query or {}), **REAL_QUERIES.get(path, {})}
        response = case.call(base_url=served.server.url, headers=CREDENTIALS)
        case.validate_response(response, checks=CHECKS)
        seen.add(response.status_code)

    seen = set()
    ask()
    if mode is GenerationMode.POSITIVE and not path.startswith("/savepoint-disposal"):
        assert seen & {200, 202}
    if method == "GET":
        wait_until(lambda: served.job.status() is JobStatus.RUNNING)
    else:
        wait_until(lambda: served.job.status() is not JobStatus.FAILING)
        assert served.job.status() is not JobStatus.FAILED
