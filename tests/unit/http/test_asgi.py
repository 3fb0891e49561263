"""A request and its answer, as the hot paths see them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import clarion
from clarion.errors import BodyTimeout, BodyTooLarge, MalformedBody, NotJson, Overloaded
from clarion.http.asgi import Request, header, respond_json
from clarion.http.budgets import TOTAL_BYTES, Receiving


def sent(*parts: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    left = list(parts)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def announcing(length: bytes) -> dict[str, Any]:
    return {"headers": [(b"content-length", length)], "client": ("192.0.2.7", "50000")}


UNANNOUNCED: dict[str, Any] = {"headers": [], "client": ("192.0.2.7", "50000")}


@pytest.mark.parametrize("parts", [[b""], [b"abc"], [b"a", b"", b"bc"]])
async def test_the_body_is_all_its_parts(parts: list[bytes]) -> None:
    request = Request(UNANNOUNCED, sent(*parts), "r", None, limit=3)
    assert await request.body() == b"".join(parts)


@pytest.mark.parametrize("parts", [[b"abc", b""], [b"a", b"bc", b""]])
async def test_the_end_of_a_body_is_not_waited_for_when_all_of_it_is_here(
    parts: list[bytes],
) -> None:
    request = Request(announcing(b"3"), sent(*parts), "r", None, limit=3)
    assert await request.body() == b"abc"
    assert request.is_whole
    assert not request.is_read
    await request.discard()
    assert request.is_read


@pytest.mark.parametrize("length", [b"2", b"4", b"-3", b"3, 3", b"\xb3", b""])
async def test_a_body_of_another_length_than_announced_is_read_to_its_end(length: bytes) -> None:
    request = Request(announcing(length), sent(b"a", b"bc", b""), "r", None, limit=3)
    assert await request.body() == b"abc"
    assert request.is_read


@pytest.mark.parametrize("parts", [[b"abcd"], [b"abc", b"d"], [b"ab", b"cd", b"never read"]])
async def test_a_body_beyond_the_limit_is_refused_as_soon_as_that_is_certain(
    parts: list[bytes],
) -> None:
    with pytest.raises(BodyTooLarge):
        await Request(UNANNOUNCED, sent(*parts), "r", None, limit=3).body()


def test_the_first_header_of_a_name_counts() -> None:
    scope = {"headers": [(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")]}
    request = Request(scope, sent(), "r", None, limit=3)
    for find in (request.header, partial(header, scope)):
        assert [find(name) for name in (b"a", b"b", b"c")] == ["1", "é", None]


def test_json_ends_with_a_line_feed() -> None:
    kind, more = (b"content-type", b"application/json"), (b"a", b"1")
    assert respond_json(201, b"{}", more) == (201, b"{}\n", (kind, more))


def test_all_json_is_answered_in_this_way() -> None:
    """But for exports, which are sent in parts, and the APNs endpoint, which answers as Apple."""
    source = Path(clarion.__file__).parent
    makers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if '(b"content-type", b"application/json")' in path.read_text()
    }
    assert makers == {"http/asgi.py", "http/parts.py", "push/apns/endpoint.py"}


async def test_a_body_may_have_a_smaller_limit_of_its_own() -> None:
    with pytest.raises(BodyTooLarge):
        await Request(UNANNOUNCED, sent(b"abc"), "r", None, limit=3).body(2)


async def test_what_is_left_of_a_body_is_forgotten() -> None:
    request = Request(UNANNOUNCED, sent(b"ab", b"cd", b""), "r", None, limit=100)
    with pytest.raises(BodyTooLarge):
        await request.body(3)
    assert not request.is_read
    await request.discard()
    assert request.is_read


async def test_a_body_without_end_is_not_waited_for() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"abc", "more_body": True}

    request = Request(UNANNOUNCED, receive, "r", None, limit=100)
    await request.discard()
    assert not request.is_read


async def test_a_body_that_breaks_off_is_not_taken_for_a_whole_one() -> None:
    parts = [{"type": "http.request", "body": b'{"a":1}', "more_body": True}]

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    with pytest.raises(MalformedBody):
        await Request(UNANNOUNCED, receive, "r", None, limit=100).body()


@pytest.mark.parametrize("first", [[], [b"ab"]], ids=["nothing", "a part"])
async def test_a_body_that_does_not_end_in_time_is_given_up(first: list[bytes]) -> None:
    parts, receiving = list(first), Receiving(limit_s=0)

    async def receive() -> dict[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": True}
        asyncio.get_running_loop().call_soon(receiving.expire)
        await asyncio.Event().wait()
        raise AssertionError

    request = Request(UNANNOUNCED, receive, "r", None, 100, receiving)
    with pytest.raises(BodyTimeout):
        await request.body()
    assert (len(receiving), receiving.budget.held_bytes) == (0, 0)
    await asyncio.sleep(0)  # the task goes on: it is not cancelled any more


async def test_a_request_that_is_cancelled_by_others_stays_cancelled() -> None:
    receiving = Receiving(limit_s=60)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.create_task(Request(UNANNOUNCED, receive, "r", None, 9, receiving).body())
    await asyncio.sleep(0)
    receiving.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(receiving) == 0


async def test_bodies_of_one_caller_hold_a_quarter_of_the_memory() -> None:
    receiving = Receiving()
    receiving.budget.take("192.0.2.7", TOTAL_BYTES // 4 - 5)
    request = Request(UNANNOUNCED, forever(b"1234"), "r", None, 100, receiving)
    with pytest.raises(Overloaded):
        await request.body()
    assert receiving.budget.held_bytes == TOTAL_BYTES // 4 - 5
    elsewhere = {**UNANNOUNCED, "client": ("192.0.2.8", "50000")}
    other = Request(elsewhere, sent(b"a", b"bc"), "r", None, 9, receiving)
    assert await other.body() == b"abc"


def forever(part: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": part, "more_body": True}

    return receive


@pytest.mark.parametrize(
    "given",
    [
        {"content-type": "application/json"},
        {"content-type": "Application/JSON; charset=utf-8"},
        {"content-type": "application/merge-patch+json"},
        {"content-type": "application/json", "content-encoding": "identity"},
    ],
)
async def test_a_json_body_is_read(given: dict[str, str]) -> None:
    assert await json_request(given, b"{}").json() == b"{}"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"content-type": ""},
        {"content-type": "text/plain"},
        {"content-type": "text/json"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "text/plain; x=application/json"},
    ],
)
async def test_another_body_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(NotJson):
        await json_request(given, b"{}").json()


async def test_no_body_needs_no_type() -> None:
    assert await json_request({}, b"").json() == b""


def json_request(given: dict[str, str], body: bytes) -> Request:
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    return Request({**UNANNOUNCED, "headers": headers}, sent(body), "r", None, limit=100)
