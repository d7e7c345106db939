"""The files of the dashboard, and how a page becomes the owner's."""

import gzip
import http.client
from urllib.parse import urlsplit

import pytest

from tests.served_jobs import TOKEN
from tidegate.core.rest_settings import RestSettings
from tidegate.web.registry import owner_token
from tidegate.web.serving.logins import Logins
from tidegate.web.serving.pages import Pages


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The dashboard of a server that is started from now on."""
    root = tmp_path / "dashboard"
    (root / "inner").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>t</title>")
    (root / "inner" / "app.js").write_text("export const a = 1;" * 100)
    (root / "notes.py").write_text("secret = 1")
    (tmp_path / "outside.js").write_text("secret")
    monkeypatch.setattr(Pages.__init__, "__defaults__", (root,))
    return root


def get(served, path, **headers):
    """Status, headers and body, as they are sent."""
    address = urlsplit(served.server.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=120)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, body


def test_the_page_needs_no_token_and_may_load_only_itself(folder, served):
    status, headers, body = get(served, "/")
    assert (status, body) == (200, b"<!doctype html><title>t</title>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy


def test_files_are_packed_and_sent_again_only_when_they_have_changed(folder, served):
    path = "/dashboard/inner/app.js"
    _, headers, body = get(served, path, **{"accept-encoding": "gzip"})
    assert headers["content-encoding"] == "gzip" and len(body) < 200
    assert gzip.decompress(body) == b"export const a = 1;" * 100
    tag = headers["etag"]
    assert get(served, path, **{"if-none-match": tag})[0] == 304
    (folder / "inner" / "app.js").write_text("changed")
    assert get(served, path, **{"if-none-match": tag})[2] == b"changed"


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/none.js",
        "/dashboard/inner",
        "/dashboard/",
        "/dashboard/../outside.js",
        "/dashboard/%2e%2e/outside.js",
        "/dashboard//etc/passwd.js",
        "/dashboard/notes.py",
        "/dashboard/a%00.js",
    ],
)
def test_nothing_else_is_sent(folder, served, path):
    assert get(served, path)[0] == 404


def test_a_code_lets_a_page_in_once(serve):
    served = serve(rest=RestSettings())
    code = served.server.login_link().partition("login=")[2]
    refused = {"authorization": ""}
    assert served.of_job("?mode=cancel", method="PATCH", headers=refused).status == 401
    answer = served.ask("/tidegate/session", "POST", {"code": code}, refused)
    session = {"authorization": f"Bearer {answer.document['token']}"}
    assert served.ask("/config", headers=session).document["tidegate"]["may-act"] is True
    assert served.ask("/config", headers=refused).document["tidegate"]["may-act"] is False
    assert served.of_job("/checkpoints", method="POST", headers=session).status == 202
    assert served.ask("/tidegate/session", "POST", {"code": code}, refused).status == 401


def test_only_the_owner_gives_out_codes(served):
    assert served.ask("/tidegate/login", "POST").status == 403
    answer = served.ask("/tidegate/login", "POST", headers=served.as_owner())
    assert (answer.status, answer.document["seconds"]) == (200, 300)


def test_codes_and_sessions_expire():
    clock = [1000.0]
    logins = Logins(lambda: clock[0])
    late, code = logins.new_code(), logins.new_code()
    token, _ = logins.redeem(code)
    assert logins.knows(token) and not logins.knows("") and not logins.knows(code)
    clock[0] += 301
    assert logins.redeem(late) is None
    clock[0] += 12 * 3600
    assert not logins.knows(token)


def test_a_read_only_server_refuses_every_order(serve):
    served = serve(rest=RestSettings(read_only=True))
    owner = served.as_owner()
    for method, path in (
        ("PATCH", "?mode=cancel"),
        ("POST", "/savepoints"),
        ("POST", "/stop"),
        ("PATCH", "/rescaling?parallelism=1"),
    ):
        answer = served.of_job(path, method=method, headers=owner)
        assert (answer.status, "read-only" in answer.error) == (403, True)
    config = served.ask("/config", headers=owner).document
    assert config["features"]["web-cancel"] is False
    assert (config["tidegate"]["may-act"], config["tidegate"]["may-look"]) == (False, True)
    assert served.of_job(headers=owner).status == 200


def test_jobs_of_other_drivers_are_listed_with_a_way_in(serve):
    one, other = serve(name="one"), serve(name="other")
    jobs = {job["name"]: job for job in one.ask("/tidegate/jobs").document["jobs"]}
    assert (jobs["one"]["here"], jobs["other"]["here"]) == (True, False)
    assert jobs["other"]["url"] == other.server.url
    owner = {"authorization": f"Bearer {owner_token()}"}
    path = f"/tidegate/jobs/{other.id}/link"
    assert one.ask(path, "POST").status == 403
    url = one.ask(path, "POST", headers=owner).document["url"]
    assert url.startswith(f"{other.server.url}/#/jobs/{other.id}?login=")
    code = url.partition("login=")[2]
    assert other.ask("/tidegate/session", "POST", {"code": code}).status == 200
    assert TOKEN not in url
