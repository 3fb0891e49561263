"""What would become of an event for a person at a moment: the same facts, the same rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.errors import FieldFault, InvalidFields
from clarion.events.decide.rules import DEFAULT_RULE, ORDER, decide
from clarion.events.decider import make_ask
from clarion.events.drafts import find_timeless_faults, make_event
from clarion.events.intake import find_kind_faults

if TYPE_CHECKING:
    from clarion.catalog.port import Catalog
    from clarion.events.cases import Gathering
    from clarion.events.decide.verdicts import Decision
    from clarion.events.drafts import EventDraft

RULES = (*(name for name, _ in ORDER), DEFAULT_RULE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdicts of one moment, by channel."""

    user_id: str
    at: int
    decisions: tuple[Decision, ...]


class Explaining:
    """Decides without writing anything."""

    def __init__(self, catalog: Catalog, gathering: Gathering) -> None:
        self._catalog = catalog
        self._gathering = gathering

    async def explain(self, app_id: str, draft: EventDraft, at: int) -> Explanation:
        """Return what the rules say of an event for one person."""
        user_id = draft.recipient.user_id
        if user_id is None:
            raise InvalidFields(FieldFault("recipient.user_id", "is required: one person a time"))
        kind = await self._catalog.find(app_id, draft.type)
        if kind is None:
            raise InvalidFields(FieldFault("type", f"there is no type {draft.type}"))
        if faults := (*find_timeless_faults(draft), *find_kind_faults(draft, kind)):
            raise InvalidFields(*faults)
        event = make_event(draft, app_id, "", at, priority=kind.type.priority)
        (brief,) = await self._gathering.gather([make_ask(event, user_id, kind, at)])
        return Explanation(user_id, at, decide(brief.case))
