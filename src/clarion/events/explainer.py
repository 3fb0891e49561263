"""Decides an event for a user at a time without sending it: the same rules on the same facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.errors import FieldFault, InvalidFields
from clarion.events.decide.rules import DEFAULT_RULE, ORDER, decide
from clarion.events.decider import make_request
from clarion.events.drafts import find_timeless_faults, make_event
from clarion.events.intake import find_type_faults

if TYPE_CHECKING:
    from clarion.catalog.port import Catalog
    from clarion.events.cases import CaseReader
    from clarion.events.decide.verdicts import Decision
    from clarion.events.drafts import EventDraft

RULES = (*(name for name, _ in ORDER), DEFAULT_RULE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decisions for a user at a time."""

    user_id: str
    at: int
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explainer:
    """Decides, and writes nothing."""

    catalog: Catalog
    cases: CaseReader

    async def explain(self, app_id: str, draft: EventDraft, at: int) -> Explanation:
        """Return the decisions for an event with a single recipient."""
        user_id = draft.recipient.user_id
        if user_id is None:
            reason = "is required: an explanation is for one user"
            raise InvalidFields(FieldFault("recipient.user_id", reason))
        entry = await self.catalog.find(app_id, draft.type)
        if entry is None:
            raise InvalidFields(FieldFault("type", f"there is no type {draft.type}"))
        if faults := (*find_timeless_faults(draft), *find_type_faults(draft, entry)):
            raise InvalidFields(*faults)
        event = make_event(draft, app_id, "", at, priority=entry.type.priority)
        (prepared,) = await self.cases.read([make_request(event, user_id, entry, at)])
        return Explanation(user_id, at, decide(prepared.case))
