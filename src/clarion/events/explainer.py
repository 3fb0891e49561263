"""Decides an event for a user at a time without sending it: the same rules on the same facts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from clarion.catalog.port import Catalog
from clarion.errors import FieldFault, InvalidFields
from clarion.events.cases import CaseReader
from clarion.events.decide.rules import DEFAULT_RULE, ORDER, decide
from clarion.events.decide.verdicts import Decision
from clarion.events.decider import make_request
from clarion.events.drafts import EventDraft, Recipient, find_timeless_faults, make_event
from clarion.events.intake import find_entry, find_segment
from clarion.fields import REFUSED_SCHEMES, is_user_id
from clarion.people.port import Segments

RULES = (*(name for name, _ in ORDER), DEFAULT_RULE)


class Explanation(msgspec.Struct, frozen=True):
    """The decisions for a user, and whether the event goes to this user at all."""

    user_id: str
    is_recipient: bool
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Decides, and writes nothing."""

    catalog: Catalog
    segments: Segments
    cases: CaseReader
    refused_schemes: Collection[str] = REFUSED_SCHEMES

    async def explain(
        self, app_id: str, draft: EventDraft, at: int, user_id: str | None = None
    ) -> Explanation:
        """Return the decisions for one user: the recipient, or `user_id` of a segment."""
        user = _find_user(draft.recipient, user_id)
        faults = list(find_timeless_faults(draft, self.refused_schemes))
        entry = await find_entry(self.catalog, app_id, draft, faults)
        segment = None
        if (name := draft.recipient.segment) is not None:
            segment = await find_segment(self.segments, app_id, name, faults)
        if faults or entry is None:
            raise InvalidFields(*faults)
        event = make_event(draft, app_id, "", at, priority=entry.type.priority)
        is_recipient = segment is None or await self.segments.has_user(app_id, segment.filter, user)
        (prepared,) = await self.cases.read([make_request(event, user, entry, at)])
        return Explanation(user, is_recipient, decide(prepared.case))


def _find_user(recipient: Recipient, user_id: str | None) -> str:
    """Return the user to explain for; `InvalidFields` if the request does not say who."""
    if recipient.segment is None:
        if user_id is not None:
            raise InvalidFields(FieldFault("user_id", "must be given for a segment only"))
        if recipient.user_id is None:
            reason = "is required: an explanation is for one user"
            raise InvalidFields(FieldFault("recipient.user_id", reason))
        return recipient.user_id
    if user_id is None:
        reason = "is required: an explanation is for one user of the segment"
        raise InvalidFields(FieldFault("user_id", reason))
    if not is_user_id(user_id):
        raise InvalidFields(FieldFault("user_id", "is no user id"))
    return user_id
