"""Acts that get no entry of their own, because there are too many: one entry counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from clarion.audit.model import Act, ActorKind, AuditResult
from clarion.clock import to_rfc3339

MINUTE_MS = 60_000
# The reason of such an entry.
SUMMARY = "summary"
# What is counted apart in a minute; beyond it, all else is counted together.
KINDS_LIMIT = 500


class ActKind(NamedTuple):
    """Acts that are counted together: with the same values of these, in the same minute."""

    minute: int
    result: AuditResult
    action: str = "any"
    app_id: str = ""
    actor_kind: ActorKind = ActorKind.NOBODY
    actor_id: str = ""


class CountedActs:
    """How many acts there were of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[ActKind] = Counter()

    def add(self, act: Act, result: AuditResult, now: int) -> None:
        """Count an act. Users of an app are counted together."""
        minute = now - now % MINUTE_MS
        # The entry names who acted for a whole minute: that is for keys, not for persons.
        who = "" if act.actor_kind is ActorKind.USER else act.actor_id
        kind = ActKind(minute, result, act.action, act.app_id, act.actor_kind, who)
        if kind not in self._counts and len(self._counts) >= KINDS_LIMIT:
            kind = ActKind(minute, result)
        self._counts[kind] += 1

    def take(self, now: int) -> Iterator[tuple[ActKind, int]]:
        """Remove and yield the counts from before the minute of a time."""
        for kind in [each for each in self._counts if each.minute + MINUTE_MS <= now]:
            yield kind, self._counts.pop(kind)

    def put_back(self, kind: ActKind, count: int) -> None:
        """Keep what could not be stored."""
        self._counts[kind] += count


def summarise(kind: ActKind, count: int) -> Act:
    """Return the act of an entry that counts others."""
    return Act(
        action=kind.action,
        actor_kind=kind.actor_kind,
        actor_id=kind.actor_id,
        app_id=kind.app_id,
        target={"count": str(count), "minute": to_rfc3339(kind.minute)},
    )
