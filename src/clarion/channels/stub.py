"""A provider that delivers nothing, and returns the outcome that the address names: for tests.

A user's address is the attribute `stub`: `delivered`, `rejected`, `gone`, `retry`, `retry 2`
(fails twice, then delivers), `slow` (delivers after five seconds) or `broken` (raises an error).
"""

from __future__ import annotations

import asyncio

from clarion.catalog.model import Channel
from clarion.channels.kinds import NO_ANSWERS, ProviderKind
from clarion.channels.model import Delivered, Gone, Outcome, OutgoingMessage, Rejected, Retry

SLOW_S = 5.0


class StubSender:
    """The `Sender` port, for tests."""

    async def send(self, message: OutgoingMessage) -> Outcome:
        match str(message.user.attributes.get("stub", "")).split():
            case ["delivered"]:
                return Delivered(response="stub: accepted")
            case ["slow"]:
                await asyncio.sleep(SLOW_S)
                return Delivered(response="stub: accepted after a while")
            case ["gone"]:
                return Gone(error_code="gone", error_message="the address no longer exists")
            case ["retry"]:
                return Retry(error_code="try_later", error_message="not now")
            case ["retry", times] if times.isdecimal():
                return _deliver_after(message.attempt, int(times))
            case ["broken"]:
                raise RuntimeError("the address says so")
            case _:
                reason = "the address accepts no messages"
                return Rejected(error_code="rejected", error_message=reason)

    async def close(self) -> None:
        """Nothing is open."""


def _deliver_after(attempt: int, times: int) -> Outcome:
    if attempt <= times:
        return Retry(error_code="try_later", error_message=f"attempt {attempt} of {times}")
    return Delivered(response=f"stub: accepted at attempt {attempt}")


STUB = ProviderKind(
    name="stub",
    channels=frozenset({Channel.STUB}),
    open=lambda _configuration, _context: StubSender(),
    answers=NO_ANSWERS,
    is_watched=False,
)
