"""What can be decided for a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.catalog.model import Channel
    from clarion.events.model import ReasonCode


@dataclass(frozen=True, slots=True)
class Send:
    """Now."""

    reason: ReasonCode


@dataclass(frozen=True, slots=True)
class Hold:
    """Not before `until`; None: until a preference changes. Held is never dropped."""

    reason: ReasonCode
    until: int | None


@dataclass(frozen=True, slots=True)
class Fold:
    """As part of another notification, or of a digest that is due at `until`."""

    reason: ReasonCode
    into: str | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Not at all."""

    reason: ReasonCode


Verdict = Send | Hold | Fold | Drop


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict for a channel and the rule that gave it."""

    channel: Channel
    verdict: Verdict
    rule: str
