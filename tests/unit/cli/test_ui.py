"""``tidegate ui``: a link that logs in once, from a driver or from a server of its own."""

import json
import re
import subprocess
import sys
import urllib.request

from typer.testing import CliRunner

from tidegate.cli.commands import ui
from tidegate.cli.main import app


def test_the_link_to_a_running_job_logs_in_once(served):
    result = CliRunner().invoke(app, ["ui", "--no-browser"])
    link = result.output.strip()
    assert link.startswith(f"{served.server.url}/#/jobs/{served.id}?login=")
    code = {"code": link.partition("login=")[2]}
    assert served.ask("/tidegate/session", "POST", code).status == 200
    assert served.ask("/tidegate/session", "POST", code).status == 401


def test_a_browser_is_started_without_the_code_in_its_command(served, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(ui.webbrowser, "open", opened.append)
    result = CliRunner().invoke(app, ["ui", served.id[:8]])
    link = result.output.strip()
    (url,) = opened
    assert link not in url and url.startswith("file:")
    with urllib.request.urlopen(url) as file:
        assert link in file.read().decode()


def test_without_a_running_job_the_command_serves_those_that_have_ended(serve, home):
    served = serve()
    served.job.cancel()
    served.server.close()
    command = [sys.executable, "-m", "tidegate", "ui", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        link = process.stdout.readline().strip()
        (url,) = re.findall(r"^(http://127\.0\.0\.1:\d+)/#\?login=[\w-]+$", link)
        with urllib.request.urlopen(f"{url}/tidegate/jobs") as answer:
            (job,) = json.load(answer)["jobs"]
        assert (job["jid"], job["state"]) == (served.id, "CANCELED")
        with urllib.request.urlopen(f"{url}/config") as answer:
            assert json.load(answer)["tidegate"]["server"] == "registry"
    finally:
        process.terminate()
        assert process.wait(60) == 0
