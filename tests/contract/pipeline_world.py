"""The real pipeline on a real store, driven step by step with a clock that the test moves."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import msgspec

from clarion.catalog.model import (
    Category,
    Channel,
    Dedupe,
    DedupeMode,
    Digest,
    NotificationType,
    Overflow,
    Priority,
    RateLimit,
)
from clarion.catalog.sql import Templates, Types
from clarion.channels.model import Outcome, OutgoingMessage
from clarion.channels.port import Sender
from clarion.channels.stub import StubSender
from clarion.events.drafts import EventDraft
from clarion.events.pipeline import Pipeline
from clarion.history.model import Delivery, Notification
from clarion.inbox.model import InboxAction
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.model import Preferences, User
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.contract.conftest import opened
from tests.contract.pipeline_model import ModelUser
from tests.factories import FixedClock, make_template, make_type, make_user, new_app_id
from tests.inbox import list_inbox
from tests.pipeline import PipelineStore, build_pipeline, drain
from tests.replacing import replace

# 2026-03-28T20:30Z: Berlin's clocks are put forward five hours later, at its night.
START = 1_774_729_800_000
TOPIC = "news"
TEXT = "{{ count }}"
FORGET_JOBS = statement("forget_jobs", "DELETE FROM jobs")
COUNT_JOBS = statement(
    "count_jobs_of_app",
    """SELECT SUM(CASE WHEN lane >= 0 THEN 1 ELSE 0 END), SUM(CASE WHEN lane < 0 THEN 1 ELSE 0 END)
    FROM jobs WHERE app_id = :app_id""",
)
READ_EVENTS = statement(
    "read_all_events",
    "SELECT id, status, remaining, notification_count FROM events WHERE app_id = :app_id",
)
READ_NOTIFICATIONS = statement(
    "read_all_notifications",
    "SELECT event_id, user_id, id FROM notifications WHERE app_id = :app_id",
)
READ_LIMITED = statement(
    "read_limited",
    """SELECT DISTINCT n.event_id, n.user_id FROM deliveries d JOIN notifications n
    ON n.app_id = d.app_id AND n.user_id = d.user_id AND n.id = d.notification_id
    WHERE d.app_id = :app_id AND d.status = 'held' AND d.reason = 'limit_waits'""",
)
BOTH = (Channel.IN_APP, Channel.STUB)
_ids = count(1)


def _type(name: str, **changes: Any) -> NotificationType:
    return make_type(name, **{"category": Category.SOCIAL, "default_channels": BOTH} | changes)


TYPES = {
    each.type: each
    for each in (
        _type("PLAIN"),
        _type("ALARM", category=Category.SAFETY),
        _type("ONCE", dedupe=Dedupe(window_s=3_600)),
        _type("LIKES", dedupe=Dedupe(window_s=21_600, mode=DedupeMode.AGGREGATE)),
        _type("FEW", rate_limit=RateLimit(per_user_per_hour=2)),
        _type("QUEUE", rate_limit=RateLimit(per_user_per_hour=1, overflow=Overflow.WAIT)),
        _type("HEAP", rate_limit=RateLimit(per_user_per_hour=1, overflow=Overflow.DIGEST)),
        _type("LETTER", digest=Digest(window_s=7_200), category=Category.NEWS),
    )
}


@dataclass
class Recorder:
    """The stub provider; records its messages, their times, and if the hour was quiet."""

    clock: FixedClock
    users: list[ModelUser]
    messages: list[tuple[OutgoingMessage, int, bool]] = field(default_factory=list)
    name = "stub"

    async def send(self, message: OutgoingMessage) -> Outcome:
        now = self.clock.now()
        (user,) = [each for each in self.users if each.id == message.user.id]
        self.messages.append((message, now, user.is_quiet(now)))
        return await StubSender().send(message)

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """One app in an open store, with three users and all types."""

    def __init__(self, runner: asyncio.Runner, engine: Engine, users: list[ModelUser]) -> None:
        self.app_id = new_app_id()
        # All worlds share a store, so they share the numbers of their ids.
        self.clock = FixedClock(START, _ids=_ids)
        self.provider = Recorder(self.clock, users)
        self.store = PipelineStore(engine, self.app_id)
        self._runner = runner
        self._engine = engine
        self._inboxes = SqlInboxes(engine)
        self._users = Users(engine)
        providers: dict[Channel, Sender] = {Channel.STUB: self.provider}
        self._make = partial(_build, engine, self.clock, providers)
        self.zombie = self.pipeline = runner.run(self._make())
        runner.run(self._set_up(users))

    async def _set_up(self, users: list[ModelUser]) -> None:
        types, templates = Types(self._engine), Templates(self._engine)
        await asyncio.gather(
            *(self._users.put(make_user(p.id, app_id=self.app_id)) for p in users),
            *(types.put(self.app_id, each, START) for each in TYPES.values()),
            *(templates.put(self.app_id, _make_template(name, TEXT, ())) for name in TYPES),
        )
        await asyncio.gather(
            *(self._users.follow(self.app_id, p.id, TOPIC, START) for p in users[:2]),
            *(self._users.patch(self.app_id, p.id, _edit(p)) for p in users),
        )

    def resume_zombie(self) -> None:
        """Let the pipeline before this one continue with its claimed jobs."""
        self._runner.run(drain(self.zombie))

    def restart(self) -> None:
        """Start a new pipeline; the old one keeps its claimed jobs."""
        self.zombie = self.pipeline
        self.pipeline = self._runner.run(self._make())

    def take_over(self) -> None:
        self._runner.run(self.pipeline.take_over())

    def drain(self) -> None:
        self._runner.run(drain(self.pipeline))

    def claim(self) -> None:
        """Claim all due jobs, and do nothing with them."""
        self._runner.run(self.store.claim(self.clock.now()))

    def send(self, body: dict[str, Any]) -> str:
        """Send an event, and return its id."""
        return self._runner.run(self._accept(msgspec.convert(body, EventDraft)))

    async def _accept(self, draft: EventDraft) -> str:
        event = await self.pipeline.intake.prepare(self.app_id, draft)
        assert await self.pipeline.intake.accept([event]) is None
        return event.id

    def cancel(self, event_id: str) -> bool:
        cancelling = self.store.events.cancel(self.app_id, event_id, self.clock.now())
        return self._runner.run(cancelling)

    def replay(self, event_id: str, lane: Priority) -> bool:
        now = self.clock.now()
        replaying = self.store.events.replay(self.app_id, event_id, lane, now)
        return self._runner.run(replaying)

    def change(self, user: ModelUser) -> None:
        """Store the settings of a user as the API does, and replan."""
        self._runner.run(self._users.patch(self.app_id, user.id, _edit(user)))
        self._runner.run(self.pipeline.replan(self.app_id, user.id))

    def define(self, definition: NotificationType) -> None:
        """Store a type beside those that all worlds have, with a text."""
        self._runner.run(Types(self._engine).put(self.app_id, definition, START))
        self.write_text(definition.type, TEXT)

    def write_text(self, name: str, body: str, *variables: str) -> None:
        """Change the text of a type."""
        template = _make_template(name, body, variables)
        self._runner.run(Templates(self._engine).put(self.app_id, template))
        self.restart()  # a catalog may be ten seconds old

    def act(self, verb: str, user: ModelUser, notification_id: str) -> None:
        owner, now = (self.app_id, user.id), self.clock.now()
        self._runner.run(self._inboxes.apply(InboxAction(verb), *owner, notification_id, now))

    def read_all(self, user: ModelUser) -> None:
        self._runner.run(self._inboxes.read_all(self.app_id, user.id, self.clock.now()))

    def inbox(self, user: ModelUser) -> list[Notification]:
        return self._runner.run(list_inbox(self._engine, self.app_id, user.id, limit=1_000))

    def state(self, user: ModelUser) -> tuple[int, int]:
        state = self._runner.run(self._inboxes.state(self.app_id, user.id))
        return state.unread_count, state.sequence

    def sequences(self, user: ModelUser) -> list[int]:
        changes = self._inboxes.changes(self.app_id, user.id, 0, 1_000)
        return [each.sequence for each in self._runner.run(changes)]

    def notifications(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield event and user, and the id."""
        for event_id, user_id, notification_id in self._fetch(READ_NOTIFICATIONS):
            yield (event_id, user_id), notification_id

    def deliveries(self, notification_id: str, channel: Channel) -> list[Delivery]:
        """Return the delivery of a notification on a channel, if it has one."""
        finding = self.store.deliveries.find_many(self.app_id, [notification_id])
        found = self._runner.run(finding).get(notification_id, ())
        return [each for each in found if each.channel is channel]

    def limited(self) -> set[tuple[str, str]]:
        """Return what waits for a limit."""
        return set(self._fetch(READ_LIMITED))

    def events(self) -> list[tuple[str, str, int, int]]:
        return list(self._fetch(READ_EVENTS))

    def count_jobs(self) -> tuple[int, int]:
        """Return how many jobs wait, and how many are dead letters."""
        ((waiting, dead),) = self._fetch(COUNT_JOBS)
        return waiting or 0, dead or 0

    def _fetch(self, of: Any) -> Any:
        return self._runner.run(self._engine.fetch(of, app_id=self.app_id))

    def forget(self) -> None:
        """Leave no jobs to the next world."""
        self._runner.run(self._engine.write(Unit("", (FORGET_JOBS.step(),))))


async def _build(
    engine: Engine, clock: FixedClock, providers: Mapping[Channel, Sender]
) -> Pipeline:
    return build_pipeline(engine, clock, providers)


def _make_template(name: str, body: str, variables: Sequence[str]) -> Any:
    return make_template(
        name, channel=Channel.IN_APP, subject=None, body=body, variables=tuple(variables)
    )


def _edit(settings: ModelUser) -> Any:
    def edit(user: User) -> User:
        types: dict[str, dict[Channel, bool]] = {}
        for name, channel in settings.off:
            types.setdefault(name, {})[channel] = False
        preferences = Preferences(
            quiet_hours=settings.quiet,
            categories=dict.fromkeys(settings.categories_off, False),
            types=types,
        )
        attributes: dict[str, object] = {"stub": settings.stub}
        return replace(user, timezone=settings.zone, preferences=preferences, attributes=attributes)

    return edit


class Store:
    """An open store for many worlds, one after the other."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._engine = self._runner.run(self._stack.enter_async_context(opened(url)))

    def make_world(self, users: list[ModelUser]) -> World:
        return World(self._runner, self._engine, users)

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()
