"""Responses: large ones go out in parts, as the client reads them."""

import asyncio
from typing import Any

import pytest

from clarion.errors import Overloaded
from clarion.http.asgi import Request, Response
from clarion.http.budgets import TOTAL_BYTES, MemoryBudget
from clarion.http.sending import PART_BYTES, RATE_BYTES, TAIL_BYTES, TAIL_PARTS, ResponseSender

LARGE = bytes(range(256)) * 4096


def asked(method: str) -> Request:
    async def receive() -> dict[str, Any]:
        raise AssertionError

    return Request({"method": method, "client": ("192.0.2.7", "50000")}, receive, "r", None, 0)


ASKED = asked("GET")
# What the listener buffers before `send` waits.
BUFFERED = 5


class Client:
    """Takes what is sent, up to a number of parts; then it reads nothing more."""

    def __init__(self, parts: int = 1_000) -> None:
        self.sent: list[Any] = []
        self._left = parts

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            if not self._left:
                await asyncio.Event().wait()
            self._left -= 1
        self.sent.append(message)

    @property
    def parts(self) -> list[bytes]:
        return [each["body"] for each in self.sent[1:]]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES])
async def test_a_small_response_goes_out_whole(size: int) -> None:
    client, budget = Client(), MemoryBudget()
    await ResponseSender(ASKED, client.send, [], budget).respond(Response(200, b"x" * size))
    assert client.parts == [b"x" * size]
    assert budget.held_bytes == 0


@pytest.mark.parametrize("size", [PART_BYTES + 1, 3 * PART_BYTES, len(LARGE)])
async def test_a_large_response_ends_with_parts_that_cost_nothing_to_buffer(size: int) -> None:
    client = Client()
    await ResponseSender(ASKED, client.send, [], MemoryBudget()).respond(
        Response(200, LARGE[:size])
    )
    assert b"".join(client.parts) == LARGE[:size]
    assert max(map(len, client.parts)) <= PART_BYTES
    assert [len(part) for part in client.parts[-TAIL_PARTS:]] == [TAIL_BYTES] * TAIL_PARTS
    assert [each["more_body"] for each in client.sent[-2:]] == [True, False]
    assert (b"content-length", b"%d" % size) in client.sent[0]["headers"]


async def test_the_length_is_stated_once() -> None:
    client = Client()
    given = (b"content-length", b"%d" % len(LARGE))
    await ResponseSender(ASKED, client.send, [], MemoryBudget()).respond(
        Response(200, LARGE, (given,))
    )
    assert client.sent[0]["headers"] == [given]


async def test_no_more_is_sent_to_a_client_that_does_not_read_in_time() -> None:
    client, budget = Client(BUFFERED), MemoryBudget()
    soon = 0.05 - len(LARGE) / RATE_BYTES
    sender = ResponseSender(ASKED, client.send, [], budget)
    sender.stalled_s = soon
    await sender.respond(Response(200, LARGE))
    assert sender.is_stalled
    assert sum(map(len, client.parts)) == BUFFERED * PART_BYTES
    assert budget.held_bytes == 0


async def test_while_it_waits_the_whole_response_is_counted() -> None:
    client, budget = Client(BUFFERED), MemoryBudget()
    sender = ResponseSender(ASKED, client.send, [], budget)
    waiting = asyncio.create_task(sender.respond(Response(200, LARGE)))
    await asyncio.sleep(0)
    assert budget.held_bytes == len(LARGE)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert budget.held_bytes == 0


async def test_beyond_the_budget_nothing_has_been_sent_yet() -> None:
    client, budget = Client(), MemoryBudget()
    budget.take(ASKED.who, TOTAL_BYTES // 4)
    sender = ResponseSender(ASKED, client.send, [], budget)
    await sender.respond(Response(200, LARGE))
    assert isinstance(sender.refusal, Overloaded)
    assert (client.sent, sender.is_begun) == ([], False)
    await sender.respond(Response(503, b"later"))
    assert (client.sent[0]["status"], client.parts) == (503, [b"later"])


async def test_the_body_of_a_head_is_left_to_the_listener() -> None:
    client = Client()
    sender = ResponseSender(asked("HEAD"), client.send, [], MemoryBudget())
    await sender.respond(Response(200, LARGE))
    assert client.parts == [LARGE]


@pytest.mark.parametrize(
    ("kind", "body", "sent"),
    [
        (b"application/json", b"{}", b"{}\n"),
        (b"application/problem+json", b"{}", b"{}\n"),
        (b"application/json", b"", b""),
        (b"text/html", b"<p>", b"<p>"),
    ],
)
async def test_json_of_the_framework_ends_with_a_line_feed(
    kind: bytes, body: bytes, sent: bytes
) -> None:
    client = Client()
    sender = ResponseSender(ASKED, client.send, [], MemoryBudget())
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", kind)]
    await sender({"type": "http.response.start", "status": 200, "headers": headers})
    await sender({"type": "http.response.body", "body": body})
    assert client.parts == [sent]
    assert dict(client.sent[0]["headers"])[b"content-length"] == b"%d" % len(sent)
