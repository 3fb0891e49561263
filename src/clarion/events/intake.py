"""Drafts → events, stored with the work that waits for them before anybody is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.errors import FieldFault, InvalidFields, Overloaded
from clarion.events.drafts import find_faults, make_event
from clarion.events.handover import claim
from clarion.events.model import AudienceKind, Job, JobKind
from clarion.events.wording import try_words, voice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from clarion.catalog.model import Channel
    from clarion.catalog.port import Catalog, CatalogEntry
    from clarion.clock import Clock
    from clarion.events.drafts import EventDraft
    from clarion.events.handover import Handover
    from clarion.events.model import Event
    from clarion.events.port import Events
    from clarion.idempotency.model import IdempotencyClaim, StoredResponse
    from clarion.people.port import Users

# People who were found once are believed to be there: the rules look again before they are told.
KNOWN_LIMIT = 200_000
_NAMED_FAULTS = 10


class Accepting:
    """Takes events in."""

    def __init__(
        self,
        *,
        events: Events,
        users: Users,
        catalog: Catalog,
        clock: Clock,
        handover: Handover | None,
        on_accepted: Callable[[int], None],
        is_overloaded: Callable[[], bool],
    ) -> None:
        self._events = events
        self._users = users
        self._catalog = catalog
        self._clock = clock
        self._handover = handover
        self._on_accepted = on_accepted
        self._is_overloaded = is_overloaded
        self._known: set[tuple[str, str]] = set()

    async def check(self, app_id: str, draft: EventDraft) -> Event:
        """Return the event of a draft; `InvalidFields` names everything that is wrong with it."""
        now = self._clock.now()
        kind = await self._catalog.find(app_id, draft.type)
        if kind is None:
            raise InvalidFields(FieldFault("type", f"there is no type {draft.type}"))
        if faults := (*find_faults(draft, now), *find_kind_faults(draft, kind)):
            raise InvalidFields(*faults)
        event_id = self._clock.new_id()
        event = make_event(draft, app_id, event_id, now, priority=kind.type.priority)
        try_words(kind, find_voices(draft, kind), event.content)
        await self._check_people(event, draft)
        return event

    async def accept(
        self, events: Sequence[Event], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store events; returns after the commit."""
        if self._is_overloaded():
            raise Overloaded
        work = [(self._first_job(each), each) for each in events]
        replay = await self._events.accept(events, [job for job, _ in work], once)
        if replay is None:
            if self._handover is not None:
                self._handover.put(pair for pair in work if pair[0].token)
            self._on_accepted(len(events))
        return replay

    def _first_job(self, event: Event) -> Job:
        """Return the work of a new event; what is due at once is claimed by this process."""
        job = _make_job(event)
        is_due = event.scheduled_at is None and job.kind is JobKind.DECIDE
        if is_due and self._handover is not None and self._handover.has_room(1):
            return claim(job, event.created_at)
        return job

    async def recall(self, once: IdempotencyClaim | None) -> StoredResponse | None:
        """Return what the same request was answered before, if it was."""
        return await self._events.recall(once) if once else None

    def forget(self, app_id: str, user_id: str) -> None:
        """Look a person up afresh: they may be gone."""
        self._known.discard((app_id, user_id))

    async def _check_people(self, event: Event, draft: EventDraft) -> None:
        app_id = event.app_id
        unsure = [i for i in event.audience.ids if (app_id, i) not in self._known]
        if not unsure:
            return
        found = await self._users.find_many(app_id, unsure)
        self._remember(app_id, found)
        missing = [user_id for user_id in unsure if user_id not in found]
        if missing:
            raise InvalidFields(*_name_missing(draft, missing))

    def _remember(self, app_id: str, found: Collection[str]) -> None:
        if len(self._known) + len(found) > KNOWN_LIMIT:
            self._known.clear()
        self._known.update((app_id, user_id) for user_id in found)


def find_kind_faults(draft: EventDraft, kind: CatalogEntry) -> tuple[FieldFault, ...]:
    """Return what is wrong with a draft for its type: it sleeps, or data is missing."""
    if not kind.type.is_active:
        return (FieldFault("type", f"{draft.type} is not active"),)
    return kind.find_faults(draft.data, find_voices(draft, kind))


def find_voices(draft: EventDraft, kind: CatalogEntry) -> set[Channel]:
    """Return the channels whose words an event needs."""
    return set(map(voice_of, draft.channels or kind.type.default_channels))


def _name_missing(draft: EventDraft, missing: Sequence[str]) -> list[FieldFault]:
    """Name those who are missing by their places in what was sent, repeats counted."""
    named = draft.recipient.user_ids
    if named is None:
        return [FieldFault("recipient.user_id", f"there is no user {missing[0]}")]
    return [
        FieldFault(f"recipient.user_ids[{named.index(user_id)}]", f"there is no user {user_id}")
        for user_id in missing[:_NAMED_FAULTS]
    ]


def _make_job(event: Event) -> Job:
    due_at = event.scheduled_at or event.created_at
    if event.audience.kind is AudienceKind.USER:
        user_id = event.audience.ids[0]
        return Job(
            event.id, event.priority, due_at, JobKind.DECIDE, event.app_id, event.id, user_id
        )
    return Job(event.id, event.priority, due_at, JobKind.EXPAND, event.app_id, event.id)
