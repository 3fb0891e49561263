"""What the facts will be when those before it in the same batch are written.

A hundred likes of one post come in one batch: the second sees what the first will have made of the
count, and so on, so that all can be written in one commit. If one of them is refused, those behind
it saw wrong and are refused too, and asked again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clarion.events.cases import Ask, Brief
    from clarion.events.model import Entry


class Foresight:
    """Remembers what the entries of a batch will change."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._new: set[str] = set()
        self._used: Counter[str] = Counter()

    def see(self, brief: Brief) -> Brief | None:
        """Return a brief as it will be; None if it depends on something that is yet to be made."""
        ask = brief.ask
        if ask.dedupe_id in self._new:
            return None
        count = self._counts.get(ask.dedupe_id or "")
        if count is not None and brief.earlier is not None:
            earlier = replace(brief.earlier, count=count)
            brief = replace(brief, earlier=earlier, case=replace(brief.case, earlier=earlier))
        if self._used and brief.case.limits:
            limits = tuple(replace(x, used=x.used + self._used[x.id]) for x in brief.case.limits)
            brief = replace(brief, case=replace(brief.case, limits=limits))
        return brief

    def note(self, ask: Ask, entry: Entry) -> None:
        """Take in what an entry will change."""
        if ask.dedupe_id is not None and entry.inbox_update is not None:
            self._counts[ask.dedupe_id] = entry.inbox_update.count
        elif ask.dedupe_id is not None and entry.dedupe is not None:
            self._new.add(ask.dedupe_id)
        self._used.update(use.id for use in entry.limits)
