"""What can be decided for a channel."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.catalog.model import Channel
from clarion.events.model import ReasonCode


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver now."""

    reason: ReasonCode


@dataclass(frozen=True, slots=True)
class Hold:
    """Deliver not before `until`; None: not before the user changes a preference."""

    reason: ReasonCode
    until: int | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Make it part of the notification `into`, or of a digest that is due at `until`."""

    reason: ReasonCode
    into: str | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not deliver."""

    reason: ReasonCode


Verdict = Send | Hold | Fold | Drop


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict for a channel, and the rule that returned it."""

    channel: Channel
    verdict: Verdict
    rule: str
