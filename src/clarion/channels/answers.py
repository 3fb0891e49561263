"""What follows from the answer of a provider: a table for each kind of provider.

`docs/reference/providers.md` is made from these tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from enum import StrEnum

import msgspec

from clarion.channels.model import (
    Delivered,
    Failure,
    Gone,
    Misconfigured,
    Outcome,
    Rejected,
    Retry,
    Sent,
    Unknown,
)
from clarion.clock import to_datetime

# A provider that asks for more is asked again after this time.
LONGEST_WAIT_S = 3600.0
# The codes of what happened to a request that got no answer.
NOT_CONNECTED = "not_connected"
NO_ANSWER = "no_answer"


class Action(StrEnum):
    """What Clarion does after an answer."""

    DELIVERED = "delivered"
    SENT = "sent"
    RETRY = "retry"
    SAME_PROVIDER = "same provider"
    REJECT = "reject"
    GONE = "gone"
    DISABLE = "disable"


_FAILURES: dict[Action, type[Failure]] = {
    Action.SAME_PROVIDER: Unknown,
    Action.REJECT: Rejected,
    Action.GONE: Gone,
    Action.DISABLE: Misconfigured,
}


class Answer(msgspec.Struct, frozen=True):
    """One row: an answer, named by its code, and the action."""

    code: str
    action: Action
    meaning: str


# For every provider that is reached over a network.
NETWORK = (
    Answer(NOT_CONNECTED, Action.RETRY, "No connection, or its certificate is not valid."),
    Answer(NO_ANSWER, Action.SAME_PROVIDER, "The message was sent; no complete answer came."),
)


class AnswerTable:
    """The answers of one kind of provider. The most specific code of an answer counts."""

    def __init__(self, *rows: Answer, default: Action) -> None:
        self.rows = rows
        self.default = default
        self._actions = {row.code: row.action for row in rows}

    def judge(
        self,
        codes: Sequence[str],
        message: str,
        *,
        retry_after: float | None = None,
        response: str | None = None,
    ) -> Outcome:
        """Return the outcome of an answer with these codes, the most specific first."""
        action = self._find(codes)
        match action:
            case Action.DELIVERED:
                return Delivered(response=response)
            case Action.SENT:
                return Sent(response=response)
            case Action.RETRY:
                after = None if retry_after is None else min(retry_after, LONGEST_WAIT_S)
                return Retry(error_code=codes[0], error_message=message, after_s=after)
            case _:
                return _FAILURES[action](error_code=codes[0], error_message=message)  # type: ignore[return-value]

    def find_meaning(self, code: str) -> str:
        """Return the meaning of an answer; empty if no row covers it."""
        return next((row.meaning for row in self.rows if row.code == code), "")

    def _find(self, codes: Sequence[str]) -> Action:
        for code in codes:
            if (action := self._actions.get(code)) is not None:
                return action
        return self.default


def read_retry_after(value: str | None, now: int) -> float | None:
    """Return the seconds of a `Retry-After` header: a number, or a date. None if it is neither."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value.strip()[:9])
    try:
        at = parsedate_to_datetime(value)
        return max(0.0, (at - to_datetime(now)).total_seconds())
    except (TypeError, ValueError):
        return None
