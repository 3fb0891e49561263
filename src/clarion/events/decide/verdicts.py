"""What can be decided for a channel."""

from __future__ import annotations

import msgspec

from clarion.catalog.model import Channel
from clarion.history.model import ReasonCode


class Send(msgspec.Struct, frozen=True):
    """Deliver now."""

    reason: ReasonCode


class Hold(msgspec.Struct, frozen=True):
    """Deliver not before `until`; None: not before the user changes a preference."""

    reason: ReasonCode
    until: int | None


class Fold(msgspec.Struct, frozen=True):
    """Make it part of the notification `into`, or of a digest that is due at `until`."""

    reason: ReasonCode
    into: str | None = None
    until: int | None = None


class Drop(msgspec.Struct, frozen=True):
    """Do not deliver."""

    reason: ReasonCode


Verdict = Send | Hold | Fold | Drop


class Decision(msgspec.Struct, frozen=True):
    """The verdict for a channel, and the rule that returned it."""

    channel: Channel
    verdict: Verdict
    rule: str
