"""Answers that are no answers of Clarion, and the end of a process that has called a server."""

import _thread
import threading

import pytest

from clarion.client import ApiError, AsyncClarion
from clarion.client.http import wait_for_callbacks
from tests.unit.channels.http_peers import OK, answering, listening

REDIRECT = b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize(("answer", "status"), [(OK, 200), (REDIRECT, 302)])
async def test_an_answer_that_is_none_of_clarion_is_an_error(answer: bytes, status: int) -> None:
    async with (
        listening(answering(answer)) as peer,
        AsyncClarion(f"http://127.0.0.1:{peer.port}", api_key="x") as clarion,
    ):
        with pytest.raises(ApiError) as caught:
            await clarion.request("GET", "/v1/stats", returns=dict)
    assert (caught.value.status, caught.value.code) == (status, "unknown")


async def test_a_call_returns_an_answer_with_any_status() -> None:
    async with (
        listening(answering(REDIRECT)) as peer,
        AsyncClarion(f"http://127.0.0.1:{peer.port}", api_key="x") as clarion,
    ):
        answer = await clarion.call("POST", "/3/device/a", b"{}", headers={"apns-id": "b"})
    assert (answer.status, answer.headers["Location"], answer.body) == (302, "/elsewhere", b"")
    assert not answer.is_success


async def test_a_download_comes_in_parts() -> None:
    async with (
        listening(answering(OK)) as peer,
        AsyncClarion(f"http://127.0.0.1:{peer.port}", api_key="x") as clarion,
    ):
        assert b"".join([part async for part in clarion.download("/v1/users/a/export")]) == b"ok"


def test_a_process_does_not_end_while_a_foreign_thread_runs_python_code() -> None:
    began, finished = threading.Event(), threading.Event()

    def report() -> None:
        began.set()
        finished.wait()

    _thread.start_new_thread(report, ())
    began.wait()
    ending = threading.Thread(target=wait_for_callbacks, args=(60.0,))
    ending.start()
    ending.join(0.02)
    assert ending.is_alive()
    finished.set()
    ending.join()
