"""Decides an event for a user at a time without sending it: the same rules on the same facts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from clarion.catalog.port import Catalog
from clarion.errors import FieldFault, InvalidFields
from clarion.events.cases import CaseReader
from clarion.events.decide.rules import DEFAULT_RULE, ORDER, decide
from clarion.events.decide.verdicts import Decision
from clarion.events.decider import make_request
from clarion.events.drafts import EventDraft, find_timeless_faults, make_event
from clarion.events.intake import find_entry
from clarion.fields import REFUSED_SCHEMES

RULES = (*(name for name, _ in ORDER), DEFAULT_RULE)


@dataclass(frozen=True, slots=True)
class Explainer:
    """Decides, and writes nothing."""

    catalog: Catalog
    cases: CaseReader
    refused_schemes: Collection[str] = REFUSED_SCHEMES

    async def explain(self, app_id: str, draft: EventDraft, at: int) -> tuple[Decision, ...]:
        """Return the decisions for an event with a single recipient."""
        user_id = draft.recipient.user_id
        if user_id is None:
            reason = "is required: an explanation is for one user"
            raise InvalidFields(FieldFault("recipient.user_id", reason))
        faults = find_timeless_faults(draft, self.refused_schemes)
        entry = await find_entry(self.catalog, app_id, draft, faults)
        event = make_event(draft, app_id, "", at, priority=entry.type.priority)
        (prepared,) = await self.cases.read([make_request(event, user_id, entry, at)])
        return decide(prepared.case)
