"""A request and its answer, as the hot paths see them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clarion.errors import BodyTooLarge
from clarion.http.asgi import Request, Response, header, respond


def receiving(*parts: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    left = list(parts)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


def announcing(length: bytes) -> dict[str, Any]:
    return {"headers": [(b"content-length", length)]}


UNANNOUNCED: dict[str, Any] = {"headers": []}


@pytest.mark.parametrize("parts", [[b""], [b"abc"], [b"a", b"", b"bc"]])
async def test_the_body_is_all_its_parts(parts: list[bytes]) -> None:
    request = Request(UNANNOUNCED, receiving(*parts), "r", None, limit=3)
    assert await request.body() == b"".join(parts)


@pytest.mark.parametrize("parts", [[b"abc", b""], [b"a", b"bc", b""]])
async def test_the_end_of_a_body_is_not_waited_for_when_all_of_it_is_here(
    parts: list[bytes],
) -> None:
    request = Request(announcing(b"3"), receiving(*parts), "r", None, limit=3)
    assert await request.body() == b"abc"
    assert request.is_whole
    assert not request.is_read
    await request.discard()
    assert request.is_read


@pytest.mark.parametrize("length", [b"2", b"4", b"-3", b"3, 3", b"\xb3", b""])
async def test_a_body_of_another_length_than_announced_is_read_to_its_end(length: bytes) -> None:
    request = Request(announcing(length), receiving(b"a", b"bc", b""), "r", None, limit=3)
    assert await request.body() == b"abc"
    assert request.is_read


@pytest.mark.parametrize("parts", [[b"abcd"], [b"abc", b"d"], [b"ab", b"cd", b"never read"]])
async def test_a_body_beyond_the_limit_is_refused_as_soon_as_that_is_certain(
    parts: list[bytes],
) -> None:
    with pytest.raises(BodyTooLarge):
        await Request(UNANNOUNCED, receiving(*parts), "r", None, limit=3).body()


def test_the_first_header_of_a_name_counts() -> None:
    scope = {"headers": [(b"a", b"1"), (b"b", b"\xe9"), (b"a", b"2")]}
    assert [header(scope, name) for name in (b"a", b"b", b"c")] == ["1", "é", None]


async def test_an_answer_goes_out_whole() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await respond(send, Response(201, b"body", ((b"a", b"1"),)), [(b"b", b"2")])
    assert sent == [
        {"type": "http.response.start", "status": 201, "headers": [(b"a", b"1"), (b"b", b"2")]},
        {"type": "http.response.body", "body": b"body"},
    ]


async def test_a_body_may_have_a_smaller_limit_of_its_own() -> None:
    with pytest.raises(BodyTooLarge):
        await Request(UNANNOUNCED, receiving(b"abc"), "r", None, limit=3).body(2)


async def test_what_is_left_of_a_body_is_forgotten() -> None:
    request = Request(UNANNOUNCED, receiving(b"ab", b"cd", b""), "r", None, limit=100)
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
