"""Twenty secrets are planted all over a job; none of them is shown anywhere."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tests.jobs import fail_once
from tests.programs import wait_until
from tidegate.cli.main import app
from tidegate.core.errors import UserFunctionError
from tidegate.core.rest_settings import RestSettings
from tidegate.protocol.job_status import JobStatus
from tidegate.verify.content import check_address
from tidegate.web.application import Application
from tidegate.web.operations import Operations
from tidegate.web.registry import owner_token
from tidegate.web.served_jobs import ServedJobs

ROOT = Path(__file__).parents[3]
SECRETS = [f"planted{number:02d}x" for number in range(20)]
S = SECRETS
PARAMETERS = {
    "dsn": f"host=h password={S[0]}",
    "sasl.jaas.config": f'Plain required username="u" password="{S[1]}";',
    "ssl.key.passphrase": S[2],
    "fs.azure.sas.box": S[3],
    "fs.azure.account.key.box": S[4],
    "aws_access_key_id": S[5],
    "brokers": f"kafka://u:{S[6]}@h1,kafka://u:{S[7]}@h2/x",
    "url": f"https://host/x?sig={S[8]}&se=1",
    "connection": f"Endpoint=sb://x/;SharedAccessKey={S[9]}=",
    "database": f"postgresql://u:{S[10]}/x@host/db",
}
SETTINGS = {
    "pipeline.global-job-parameters": PARAMETERS,
    "spark.hadoop.fs.s3a.secret.key": S[11],
    "spark.ssl.keyPassword": S[12],
    "tidegate.rest.token": f"{S[13]}-long-enough",
    "tidegate.rest.savepoint-directories": f"s3://k:{S[14]}@bucket/save",
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1,
    "restart-strategy.fixed-delay.delay": "1 ms",
}


def reading_paths():
    """All but that of the events, which never ends and sends what the others answer."""
    application = Application(ServedJobs(), Operations(), RestSettings(), "token")
    declared = [each.said for each in application.endpoints]
    return [
        said.path for said in declared if said.method == "GET" and said.path != "/tidegate/events"
    ]


def assert_hidden(*texts):
    for text in texts:
        assert [secret for secret in (*SECRETS, owner_token()) if secret in text] == [], text


def test_answers_and_logs_show_no_planted_secret(serve, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    served = serve(SETTINGS, name=f"from kafka://u:{S[15]}@host")
    error = ValueError(f"cannot reach postgresql://u:{S[16]}@host/db with password={S[17]}")
    fail_once(served.watch, "sums", error=error)
    served.tap.let(20)
    wait_until(lambda: served.job.chronicle.failures)
    wait_until(lambda: served.job.status() is JobStatus.RUNNING)
    ids = {
        "jobid": served.id,
        "vertexid": served.of_job().document["vertices"][1]["id"],
        "checkpointid": 1,
        "taskmanagerid": f"{served.id}-slot-1",
        "triggerid": "0" * 32,
        "rescaleuuid": "0" * 32,
        "subtaskindex": 0,
        "filename": "any",
    }
    answers = [
        served.ask(path.format_map(ids), headers=served.as_owner())
        for path in [*reading_paths(), "/openapi.json"]
    ]
    wanted = {"target-directory": f"s3://k:{S[18]}@bucket/elsewhere?secret_key={S[19]}"}
    answers.append(served.of_job("/savepoints", method="POST", body=wanted))
    assert answers[-1].status == 403
    assert "******" in json.dumps(answers[-1].document)
    assert_hidden(*(json.dumps(answer.document) for answer in answers), caplog.text)
    config = served.of_job("/config").document["execution-config"]["user-config"]
    assert config["database"] == "postgresql://host/db"
    assert "pipeline.global-job-parameters" not in config


PROGRAM = f"""
from tidegate import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing("1 s")
env.get_checkpoint_config().set_checkpoint_storage("s3://k:{S[0]}@bucket/x?secret_key={S[1]}")
stream = env.from_collection([1]).map(lambda n: n).name("to kafka://u:{S[2]}@host")
stream.print()
env.execute("with password={S[3]}")
"""


def test_explain_and_verify_show_no_planted_secret(tmp_path):
    program = tmp_path / "job.py"
    program.write_text(PROGRAM)
    for options in ((), ("--json",)):
        shown = CliRunner().invoke(app, ["explain", *options, str(program)])
        assert shown.exit_code == 0, shown.output
        assert "kafka://host" in shown.stdout
        assert_hidden(shown.output)
    address = f"postgresql://u:{S[4]}@127.0.0.1:1/db?password={S[5]}"
    shown = CliRunner().invoke(app, ["verify", "--sink", address, str(program)])
    assert shown.exit_code != 0
    assert_hidden(shown.output)


@pytest.mark.parametrize(
    "url", [f"s3://k:{S[6]}@bucket/x?scheme=bad", f"nosuch://u:{S[7]}@host/x?token={S[8]}"]
)
def test_errors_of_storage_show_no_planted_secret(url):
    shown = CliRunner().invoke(app, ["state", "show", url])
    assert shown.exit_code != 0
    assert "bucket" in shown.output or "host" in shown.output
    assert_hidden(shown.output)


def test_a_token_on_the_command_line_is_refused(tmp_path):
    program = tmp_path / "job.py"
    program.write_text("")
    given = ["run", "-D", f"tidegate.rest.token={S[9]}", str(program)]
    shown = CliRunner().invoke(app, given)
    assert shown.exit_code == 1
    assert "TIDEGATE_SETTINGS" in shown.output
    assert_hidden(shown.output)


def test_secrets_of_the_environment_reach_the_driver_but_not_ps(tmp_path):
    """Also those of drivers that the supervisor starts."""
    program = tmp_path / "job.py"
    program.write_text(
        "import pathlib, sys, time\n"
        "from tidegate.datastream.execution.hosting import hosting\n"
        "pathlib.Path(sys.argv[1]).write_text(hosting().settings['tidegate.rest.token'])\n"
        "time.sleep(120)\n"
    )
    told = tmp_path / "told"
    secret = f"{S[10]}-long-enough"
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate", "run", "--supervise", str(program), str(told)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TIDEGATE_SETTINGS": json.dumps({"tidegate.rest.token": secret}),
        },
    )
    try:
        wait_until(lambda: told.exists() and told.read_text())
        assert told.read_text() == secret
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
        assert len(family) == 2
        assert_hidden(*(" ".join(each.cmdline()) for each in family))
    finally:
        process.terminate()
        process.wait(120)


def test_secrets_of_spark_are_not_on_the_command_line_of_java(tmp_path):
    """`spark-submit` is played by a script that writes down its arguments."""
    submit, arguments = tmp_path / "bin" / "spark-submit", tmp_path / "arguments"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\necho "$@" > {arguments}\nexit 1\n')
    submit.chmod(0o700)
    program = (
        "from tidegate.core.config import Settings\n"
        "from tidegate.datastream.execution.spark_session import make_session\n"
        f"conf = {{'spark.hadoop.fs.s3a.secret.key': '{S[13]}', 'spark.eventLog.dir': 'shown'}}\n"
        "make_session(Settings.of(conf), 1)\n"
    )
    environment = {**os.environ, "SPARK_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    subprocess.run(command, env=environment, capture_output=True, check=False)
    assert "spark.eventLog.dir=shown" in arguments.read_text()
    assert_hidden(arguments.read_text())


def test_addresses_of_sinks_are_checked_without_their_login():
    with pytest.raises(Exception, match="--sink") as failure:
        check_address(f"postgresql://u:{S[11]}@host/db")
    assert_hidden(str(failure.value))


def test_the_cause_of_a_failure_shows_no_planted_secret():
    error = UserFunctionError("map", None, "(1/1)", "record", f"…\nValueError: password={S[12]}")
    assert_hidden(str(error), error.cause)
    assert error.cause == "ValueError: password=******"
