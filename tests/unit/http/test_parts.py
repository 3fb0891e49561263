"""A response that is sent as it is made ends with its client."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clarion.errors import NotJson, TooManyRequests
from clarion.http.parts import Parts


class Exchange:
    """A client that reads what is sent, and disconnects when it is asked to."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.disconnected = asyncio.Event()
        self.has_body = True
        self.events: list[str] = []

    async def receive(self) -> dict[str, Any]:
        if self.has_body:
            self.has_body = False
            raise NotJson
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message.get("body", b"start"))

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        self.events.append("begins")
        try:
            yield
        finally:
            self.events.append("ends")

    async def parts(self, *, last: bool) -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            if not last:
                self.disconnected.set()
                await asyncio.Event().wait()
        finally:
            self.events.append("closed")


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


async def run(parts: Parts, exchange: Exchange) -> None:
    async with asyncio.timeout(60):
        await parts({}, exchange.receive, exchange.send)


async def test_all_parts_are_sent(exchange: Exchange) -> None:
    await run(Parts(exchange.parts(last=True), permit=exchange.permit()), exchange)
    assert exchange.sent == [b"start", b"first", b""]
    assert exchange.events == ["begins", "closed", "ends"]


async def test_nothing_more_is_made_for_a_client_that_has_left(exchange: Exchange) -> None:
    await run(Parts(exchange.parts(last=False), permit=exchange.permit()), exchange)
    assert exchange.sent == [b"start", b"first"]
    assert exchange.events == ["begins", "closed", "ends"]


async def test_what_is_not_permitted_is_not_begun(exchange: Exchange) -> None:
    @asynccontextmanager
    async def refuse() -> AsyncIterator[None]:
        raise TooManyRequests(5)
        yield

    with pytest.raises(TooManyRequests):
        await run(Parts(exchange.parts(last=True), permit=refuse()), exchange)
    assert (exchange.sent, exchange.events) == ([], [])


async def test_one_that_cannot_be_made_is_cut_off(exchange: Exchange) -> None:
    async def fail() -> AsyncGenerator[bytes, None]:
        yield b"first"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run(Parts(fail(), permit=exchange.permit()), exchange)
    assert exchange.sent == [b"start", b"first"]
    assert exchange.events == ["begins", "ends"]


async def test_a_cancelled_response_releases_everything(exchange: Exchange) -> None:
    parts = Parts(exchange.parts(last=False), permit=exchange.permit())
    exchange.disconnected = asyncio.Event()
    task = asyncio.create_task(run(parts, exchange))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert exchange.events[-1] == "ends"
