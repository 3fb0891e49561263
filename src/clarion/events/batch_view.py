"""The state that a case of a batch will find once the outcomes before it are written.

A hundred likes of one post come in one batch: the second is decided with the count that the first
leads to, and so on, so that all are written in one commit. If one of them is refused, those after
it are refused too, and decided again.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from clarion.events.cases import DecisionRequest, PreparedCase
from clarion.events.model import JobOutcome


class BatchView:
    """Collects what the outcomes of a batch will change."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._claimed: set[str] = set()
        self._used: Counter[str] = Counter()

    def project(self, prepared: PreparedCase) -> PreparedCase | None:
        """Return a case as it will be; None if it depends on a notification not written yet."""
        dedupe_id, case = prepared.request.dedupe_id, prepared.case
        if dedupe_id in self._claimed:
            return None
        count = self._counts.get(dedupe_id or "")
        if count is not None and case.earlier is not None:
            case = replace(case, earlier=replace(case.earlier, count=count))
        if self._used and case.limits:
            limits = tuple(replace(x, used=x.used + self._used[x.id]) for x in case.limits)
            case = replace(case, limits=limits)
        return prepared if case is prepared.case else replace(prepared, case=case)

    def add(self, request: DecisionRequest, outcome: JobOutcome) -> None:
        """Add the changes of an outcome."""
        if request.dedupe_id is not None and outcome.inbox_update is not None:
            self._counts[request.dedupe_id] = outcome.inbox_update.count
        elif request.dedupe_id is not None and outcome.dedupe_claim is not None:
            self._claimed.add(request.dedupe_id)
        self._used.update(claim.id for claim in outcome.limit_claims)
