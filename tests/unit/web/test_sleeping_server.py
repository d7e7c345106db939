"""A server without requests does nothing until it is stopped."""

import asyncio

import pytest
import uvicorn

from tidegate.web.serving.sleeping_server import SleepingServer


@pytest.fixture
def server(monkeypatch):
    async def sleep(seconds):
        raise AssertionError(f"the server wakes up after {seconds} s by itself")

    monkeypatch.setattr(asyncio, "sleep", sleep)
    headers = [("x-served-by", "a test")]
    config = uvicorn.Config(
        lambda: None, headers=headers, date_header=False, server_header=False, log_config=None
    )
    config.load()
    return SleepingServer(config)


async def serve_and(act, server):
    serving = asyncio.create_task(server.main_loop())
    await asyncio.to_thread(act)
    await serving


def test_a_server_sleeps_until_it_is_ended(server):
    asyncio.run(serve_and(server.end, server))


def test_a_server_that_was_ended_before_it_served_does_not_begin(server):
    server.end()
    asyncio.run(serve_and(lambda: None, server))


def test_a_server_that_has_ended_can_be_ended_again(server):
    asyncio.run(serve_and(server.end, server))
    server.end()


def test_answers_have_their_headers_from_the_start(server):
    asyncio.run(serve_and(server.end, server))
    assert server.server_state.default_headers == [(b"x-served-by", b"a test")]
