"""New events for people: facts, rules, and one entry each. Who loses a race is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clarion.events.batch_view import Foresight
from clarion.events.cases import Ask
from clarion.events.decide.rules import decide
from clarion.events.model import Entry, EventStatus, Later
from clarion.events.outcomes import rule
from clarion.events.waiting import bury_for_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from clarion.catalog.port import Catalog, CatalogEntry
    from clarion.clock import Clock
    from clarion.events.cases import Brief, Gathering
    from clarion.events.model import Event, Job
    from clarion.events.outcome_writer import Recording
    from clarion.events.port import Events

# Who is in each other's way for longer lets others go first: a person may get much at once.
ROUNDS = 20


class _Open(NamedTuple):
    job: Job
    event: Event


class Deciding:
    """Decides for each person of a batch."""

    def __init__(
        self,
        *,
        events: Events,
        catalog: Catalog,
        gathering: Gathering,
        recording: Recording,
        clock: Clock,
    ) -> None:
        self._events = events
        self._catalog = catalog
        self._gathering = gathering
        self._recording = recording
        self._clock = clock

    async def handle(self, jobs: Sequence[Job]) -> None:
        """Decide for jobs of one app."""
        events = await self._read_events(jobs)
        await self._decide([(job, events.get(job.event_id)) for job in jobs])

    async def handle_fresh(self, pairs: Sequence[tuple[Job, Event]]) -> None:
        """Decide for new events that need not be read: they were accepted here just now."""
        by_app: dict[str, list[tuple[Job, Event | None]]] = {}
        for job, event in pairs:
            by_app.setdefault(job.app_id, []).append((job, event))
        for some in by_app.values():
            await self._decide(some)

    async def _read_events(self, jobs: Iterable[Job]) -> dict[str, Event]:
        ids = {job.event_id: job.app_id for job in jobs}
        return await self._events.find_many(next(iter(ids.values())), ids)

    async def _decide(self, pairs: Sequence[tuple[Job, Event | None]]) -> None:
        left = await self._handle_round(pairs)
        for _ in range(ROUNDS):
            if not left:
                return
            events = await self._read_events(left)
            left = await self._handle_round([(job, events.get(job.event_id)) for job in left])
        now = self._clock.now()
        await self._recording.write([Entry(job=job, next=Later(due_at=now)) for job in left])

    async def _handle_round(self, pairs: Sequence[tuple[Job, Event | None]]) -> list[Job]:
        """Decide for all that can be decided now; return those that are left."""
        entries: list[Entry] = []
        asked: list[tuple[_Open, Ask]] = []
        for job, event in pairs:
            if event is None or event.status is EventStatus.CANCELLED:
                entries.append(Entry(job=job))
                continue
            kind = await self._catalog.find(event.app_id, event.type)
            if kind is None:
                entries.append(bury_for_type(job, event.type))
            else:
                asked.append((_Open(job, event), self._ask(job, event, kind)))
        briefs = await self._gathering.gather([ask for _, ask in asked])
        opened = [(each, brief) for (each, _), brief in zip(asked, briefs, strict=True)]
        decided, later = self._decide_in_turn(opened)
        refused = await self._recording.write([*entries, *decided])
        return [*refused, *later]

    def _decide_in_turn(
        self, opened: Iterable[tuple[_Open, Brief]]
    ) -> tuple[list[Entry], list[Job]]:
        """Decide one after the other, each as if those before it were written already."""
        foresight = Foresight()
        entries: list[Entry] = []
        later: list[Job] = []
        for each, brief in opened:
            foreseen = foresight.see(brief)
            if foreseen is None:
                later.append(each.job)
                continue
            entry = self._recording.attempt(each.job, self._rule, each, foreseen)
            foresight.note(brief.ask, entry)
            entries.append(entry)
        return entries, later

    def _ask(self, job: Job, event: Event, kind: CatalogEntry) -> Ask:
        return make_ask(event, job.user_id, kind, self._clock.now())

    def _rule(self, opened: _Open, brief: Brief) -> Entry:
        notification_id = self._clock.new_id()
        return rule(opened.job, opened.event, brief, decide(brief.case), notification_id)


def make_ask(event: Event, user_id: str, kind: CatalogEntry, now: int) -> Ask:
    """Return what is to be decided of an event for a person."""
    return Ask(
        app_id=event.app_id,
        user_id=user_id,
        kind=kind,
        priority=event.priority,
        content=event.content,
        channels=event.content.channels or kind.type.default_channels,
        expires_at=event.expires_at,
        dedupe_key=event.dedupe_key,
        now=now,
    )
