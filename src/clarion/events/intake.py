"""Turns drafts into events, and stores them with their first jobs in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from clarion.catalog.model import Channel
from clarion.catalog.port import Catalog, CatalogEntry
from clarion.errors import FieldFault, InvalidFields, StoreUnavailable
from clarion.events.arrivals import Arrivals
from clarion.events.drafts import EventDraft, Recipient, find_faults, make_event
from clarion.events.handover import Handover
from clarion.events.leases import FIRST_TOKEN, LEASE_MS
from clarion.events.model import AUDIENCES, DECISIONS, AudienceKind, Event, Job, JobKind, JobOutcome
from clarion.events.port import PipelinePorts
from clarion.events.rendering import check_context, template_channel
from clarion.fields import REFUSED_SCHEMES
from clarion.http.bodies import has_faults, leave_out
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pacing import Slices
from clarion.people.model import Segment
from clarion.people.port import Segments
from clarion.push.model import Message
from clarion.telemetry.traces import find_context

# Users who were found once are not looked up again: the rules check it before anything is sent.
KNOWN_LIMIT = 200_000
# Read without a pause.
USERS_AT_ONCE = 200
_FAULTS_LIMIT = 10
# A draft without one of these is not compared with its type.
_NEEDED_BY_TYPE = ("data", "channels")


@dataclass(frozen=True, slots=True)
class Intake:
    """Accepts events. Without arrivals and a handover, another process decides them."""

    ports: PipelinePorts
    arrivals: Arrivals | None
    handover: Handover | None
    on_decided: Callable[[JobOutcome], None]
    on_accepted: Callable[[Sequence[Job]], None]
    on_unknown: Callable[[], None]
    check_backlog: Callable[[str], None]
    refused_schemes: Collection[str] = REFUSED_SCHEMES
    _known: set[tuple[str, str]] = field(default_factory=set, init=False)

    async def prepare(
        self, app_id: str, draft: EventDraft | None, known: Collection[FieldFault] = ()
    ) -> Event:
        """Return the event of a draft; `InvalidFields` names every fault of the draft.

        `known` are the faults of parts that were removed from the draft; the draft is None if one
        of these is required.
        """
        if draft is None:
            raise InvalidFields(*known)
        now = self.ports.clock.now()
        faults = [*known, *leave_out(find_faults(draft, now, self.refused_schemes), known)]
        entry = await find_entry(self.ports.catalog, app_id, draft, faults)
        segment = None
        if not has_faults(faults, "recipient"):
            segment = await self._find_recipients(app_id, draft.recipient, faults)
        if faults or entry is None:
            raise InvalidFields(*faults)
        event_id = self.ports.clock.new_id()
        event = make_event(
            draft, app_id, event_id, now, priority=entry.type.priority, trace=find_context()
        )
        await check_context(entry, _template_channels(draft, entry), event.content)
        return event if segment is None else fix_segment(event, segment)

    async def accept(
        self, events: Sequence[Event], once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Store events of one app; return after the commit.

        If an earlier request has claimed `once`, store nothing and return its response.
        `TooManyRequests` if the queue of the app is too old or too long.
        """
        app_id = events[0].app_id
        self.check_backlog(app_id)
        if self.handover is not None and self.handover.is_busy(app_id):
            await self.handover.wait(app_id)
        pairs = [(self._make_job(each), each) for each in events]
        if len(pairs) == 1 and self.arrivals is not None:
            store = partial(self._store_decided, events[0], once)
            stored = await self.arrivals.accept(*pairs[0], store)
            if stored:
                return None if stored is True else stored
        return await self._accept_undecided(pairs, once)

    async def _store_decided(
        self, event: Event, once: IdempotencyClaim | None, outcome: JobOutcome
    ) -> StoredResponse | bool:
        """Store an event with its outcome; False if a worker must decide it."""
        now = self.ports.clock.now()
        stored = await self.ports.events.accept_decided(event, outcome, once, now)
        if stored is True:
            self.on_decided(outcome)
        return stored

    async def _accept_undecided(
        self, pairs: Sequence[tuple[Job, Event]], once: IdempotencyClaim | None
    ) -> StoredResponse | None:
        """Store events with their first jobs, and hand those over that this process has claimed."""
        jobs, events = [job for job, _ in pairs], [event for _, event in pairs]
        try:
            replay = await self.ports.events.accept(events, jobs, once)
        except StoreUnavailable:
            self.on_unknown()  # they may be stored, with claimed jobs
            raise
        if replay is None:
            if self.handover is not None:
                self.handover.put(pair for pair in pairs if pair[0].token)
            self.on_accepted(jobs)
        return replay

    async def publish(
        self, event: Event, message: Message, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Store an event and a message to a topic, both or nothing; return after the commit.

        False if the topic was deleted. If an earlier request has claimed `once`, its response.
        `TooManyRequests` as in `accept`.
        """
        self.check_backlog(event.app_id)
        job = self._make_job(event)
        sequence = await self.ports.events.publish(event, job, message, once)
        if sequence is None or isinstance(sequence, StoredResponse):
            return False if sequence is None else sequence
        self.on_accepted((job,))
        await self.ports.gateway.topics.announce(message._replace(sequence=sequence))
        return True

    def _make_job(self, event: Event) -> Job:
        """Return the first job of an event, claimed by this process if it is due at once."""
        kind, user_id, pool = JobKind.EXPAND, "", AUDIENCES
        if event.audience.kind is AudienceKind.USER:
            kind, user_id, pool = JobKind.DECIDE, event.audience.ids[0], DECISIONS
        due_at, token, node_id = event.scheduled_at or event.created_at, 0, ""
        is_due = event.scheduled_at is None and kind is JobKind.DECIDE
        if is_due and self.handover is not None and self.handover.has_room(event.app_id):
            due_at, token = event.created_at + LEASE_MS, FIRST_TOKEN
            node_id = self.ports.node_id
        return Job(
            event.id,
            event.priority,
            due_at,
            kind,
            event.app_id,
            event.id,
            user_id,
            token=token,
            pool=pool,
            node_id=node_id,
        )

    async def find_response(self, once: IdempotencyClaim | None) -> StoredResponse | None:
        """Return the response to an earlier request with the same idempotency key, if any."""
        return await self.ports.events.find_response(once) if once else None

    def forget_user(self, app_id: str, user_id: str) -> None:
        """Look a user up again next time: they may be deleted."""
        self._known.discard((app_id, user_id))

    async def _find_recipients(
        self, app_id: str, recipient: Recipient, faults: list[FieldFault]
    ) -> Segment | None:
        """Return the segment of a recipient, if it is one; note the users that do not exist."""
        if recipient.segment is not None:
            return await find_segment(self.ports.segments, app_id, recipient.segment, faults)
        named = recipient.user_ids or ([recipient.user_id] if recipient.user_id else [])
        unknown = [each for each in dict.fromkeys(named) if (app_id, each) not in self._known]
        if unknown:
            faults += _missing_faults(recipient, await self._find_missing(app_id, unknown))
        return None

    async def _find_missing(self, app_id: str, unknown: Sequence[str]) -> list[str]:
        """Return which of these users do not exist."""
        missing: list[str] = []
        slices = Slices()
        for start in range(0, len(unknown), USERS_AT_ONCE):
            some = unknown[start : start + USERS_AT_ONCE]
            found = await self.ports.users.find_many(app_id, some)
            self._remember(app_id, found)
            missing += [user_id for user_id in some if user_id not in found]
            await slices.pause()
        return missing

    def _remember(self, app_id: str, found: Collection[str]) -> None:
        if len(self._known) + len(found) > KNOWN_LIMIT:
            self._known.clear()
        self._known.update((app_id, user_id) for user_id in found)


async def find_segment(
    segments: Segments, app_id: str, name: str, faults: list[FieldFault]
) -> Segment | None:
    """Return the segment of a recipient, or add a fault if it does not exist."""
    segment = await segments.get(app_id, name)
    if segment is None:
        reason = f"there is no segment {name}; create it with PUT /v1/segments/{name}"
        faults.append(FieldFault("recipient.segment", reason))
    return segment


def fix_segment(event: Event, segment: Segment) -> Event:
    """Return the event with the filter that its segment has now."""
    return replace(event, audience=replace(event.audience, filter=segment.filter))


async def find_entry(
    catalog: Catalog, app_id: str, draft: EventDraft, faults: list[FieldFault]
) -> CatalogEntry | None:
    """Return the type of a draft, and note its faults and those of the data."""
    entry = await catalog.find(app_id, draft.type)
    if entry is None:
        faults.append(FieldFault("type", await catalog.explain_missing(app_id, draft.type)))
    # Data that is too large or too deep is not looked at.
    elif not has_faults(faults, *_NEEDED_BY_TYPE):
        faults += await _find_type_faults(draft, entry)
    return entry


async def _find_type_faults(draft: EventDraft, entry: CatalogEntry) -> tuple[FieldFault, ...]:
    if not entry.type.is_active:
        return (FieldFault("type", f"{draft.type} is not active"),)
    used = _template_channels(draft, entry)
    faults = await entry.find_faults(draft.data, used)
    return faults if used <= entry.channels else (*_find_missing_templates(draft, entry), *faults)


def _find_missing_templates(draft: EventDraft, entry: CatalogEntry) -> Iterator[FieldFault]:
    """Yield a fault if a channel has no text and must have one: nothing would be shown there."""
    missing = [
        each
        for each in draft.channels or entry.type.default_channels
        if template_channel(entry, each) not in entry.channels
        and each not in entry.type.optional_channels
    ]
    if not missing:
        return
    path = f"/v1/types/{draft.type}"
    yield FieldFault(
        "channels" if draft.channels else "type",
        f"{draft.type} has no template for {', '.join(dict.fromkeys(missing))}. Add one with "
        f"PUT {path}/templates/{template_channel(entry, missing[0])}, "
        f"or list the channel in optional_channels of PUT {path}",
    )


def _template_channels(draft: EventDraft, entry: CatalogEntry) -> frozenset[Channel]:
    chosen = frozenset(draft.channels or entry.type.default_channels)
    if chosen <= entry.channels:  # as nearly always
        return chosen
    return frozenset(template_channel(entry, each) for each in chosen)


def _missing_faults(recipient: Recipient, missing: Sequence[str]) -> Iterator[FieldFault]:
    """Yield a fault for each missing user, at its place in the request."""
    for user_id in missing[:_FAULTS_LIMIT]:
        place = "user_id"
        if recipient.user_ids is not None:
            place = f"user_ids[{recipient.user_ids.index(user_id)}]"
        reason = f"there is no user {user_id}; create the user with PUT /v1/users/{user_id}"
        yield FieldFault(f"recipient.{place}", reason)
