"""A channel that delivers nothing, and answers what the address says: for trials and tests.

A person's address is the attribute `stub`: `delivered`, `rejected`, `gone`, `retry`, `retry 2`
(fails twice, then delivers), `slow` (answers after five seconds) or `broken` (raises).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from clarion.channels.model import Delivered, Gone, Rejected, Retry

if TYPE_CHECKING:
    from clarion.channels.model import Outcome, OutgoingMessage
    from clarion.people.model import User

SLOW_S = 5.0


class StubProvider:
    """The `ChannelProvider` port, for trials."""

    name = "stub"

    def can_reach(self, user: User) -> bool:
        """Whether the person has the attribute."""
        return isinstance(user.attributes.get("stub"), str)

    async def deliver(self, message: OutgoingMessage) -> Outcome:
        """Answer what the address says."""
        match str(message.user.attributes.get("stub", "")).split():
            case ["delivered"]:
                return Delivered(response="stub: taken")
            case ["slow"]:
                await asyncio.sleep(SLOW_S)
                return Delivered(response="stub: taken, after a while")
            case ["gone"]:
                return Gone(error_code="gone", error_message="this address is no more")
            case ["retry"]:
                return Retry(error_code="try_later", error_message="not now")
            case ["retry", times] if times.isdecimal():
                return _answer_after(message.attempt, int(times))
            case ["broken"]:
                msg = "the address says so"
                raise RuntimeError(msg)
            case _:
                return Rejected(error_code="rejected", error_message="this address takes nothing")


def _answer_after(attempt: int, times: int) -> Outcome:
    if attempt <= times:
        return Retry(error_code="try_later", error_message=f"attempt {attempt} of {times}")
    return Delivered(response=f"stub: taken at attempt {attempt}")
