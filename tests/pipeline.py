"""Makes events, jobs and outcomes, and builds the real pipeline on an open store."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from clarion.access.vault import Vault
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import Category, Channel, Priority
from clarion.catalog.sql import Categories, Templates, Types
from clarion.channels.gateway import PushDevices
from clarion.channels.kinds import find_address
from clarion.channels.model import Address, OutgoingMessage, Try, Unknown
from clarion.channels.port import Sender
from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.events.cases import FrequencyCaps
from clarion.events.model import (
    AUDIENCES,
    DECISIONS,
    Audience,
    AudienceKind,
    Event,
    EventStatus,
    Job,
    JobKind,
    JobOutcome,
)
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.events.sql.claims import SqlClaims
from clarion.events.sql.events import SqlEvents
from clarion.events.sql.jobs import SqlQueue
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.history.model import Content, Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.history.sql.deliveries import SqlDeliveries
from clarion.history.sql.notifications import SqlNotificationReader
from clarion.people.model import User
from clarion.people.segments.sql.segments import Segments
from clarion.people.sql import Users
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics
from clarion.push.registry import Registry
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages
from clarion.push.sql.topics import Broadcasts
from clarion.store.engine import Engine
from clarion.store.statement import keys_of, statement
from tests.factories import NOW
from tests.sandbox import DirectSandbox

LEASE = 45_000
EACH_LANE = dict.fromkeys(Priority, 100)
_numbers = count(1)


def new_event_id() -> str:
    """Return an id greater than all before."""
    return f"0190f000-0000-7000-d000-{next(_numbers):012x}"


def make_event(app_id: str = "app", **changes: Any) -> Event:
    values: dict[str, Any] = {
        "app_id": app_id,
        "id": new_event_id(),
        "type": "comment",
        "audience": Audience(AudienceKind.USER, ("ana",)),
        "content": Content(data={"snippet": "hé 📦"}),
        "priority": Priority.MEDIUM,
        "status": EventStatus.PENDING,
        "remaining": 1,
        "created_at": NOW,
    } | changes
    return Event(**{"updated_at": values["created_at"]} | values)


def make_job(event: Event, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "id": event.id,
        "lane": event.priority,
        "due_at": NOW,
        "kind": JobKind.DECIDE,
        "app_id": event.app_id,
        "event_id": event.id,
        "user_id": "ana",
    }
    return Job(**values | changes)


def make_notification(event: Event, **changes: Any) -> Notification:
    values: dict[str, Any] = {
        "app_id": event.app_id,
        "user_id": "ana",
        "id": new_event_id(),
        "event_id": event.id,
        "type": event.type,
        "category": Category.SOCIAL,
        "priority": event.priority,
        "title": "Bo",
        "body": "said something",
        "content": event.content,
        "is_shown": True,
        "created_at": NOW,
    }
    return Notification(**values | changes)


def make_delivery(notification: Notification, **changes: Any) -> Delivery:
    values: dict[str, Any] = {
        "notification_id": notification.id,
        "channel": Channel.STUB,
        "app_id": notification.app_id,
        "user_id": notification.user_id,
        "status": DeliveryStatus.QUEUED,
        "reason": ReasonCode.ALLOWED,
        "rule": "default",
        "decided_at": NOW,
    }
    return Delivery(**values | changes)


SELECT_DUE = statement(
    "select_due_times_of_jobs",
    "SELECT id, due_at FROM jobs WHERE id IN (SELECT key FROM json_each(:ids))",
)


class PipelineStore:
    """The ports of the pipeline on one open store, for one app."""

    def __init__(self, engine: Engine, app_id: str) -> None:
        self.app_id = app_id
        self.engine = engine
        self.events = SqlEvents(engine)
        self.queue = SqlQueue(engine)
        self.notifications = SqlNotificationReader(engine)
        self.claims = SqlClaims(engine)
        self.outcomes = SqlOutcomes(engine)
        self.deliveries = SqlDeliveries(engine)

    async def accept(self, **changes: Any) -> Event:
        """Store an event with the job that decides for Ana."""
        event = make_event(self.app_id, **changes)
        await self.events.accept([event], [make_job(event)])
        return event

    async def accept_job(self, job: Job) -> None:
        """Store a job; the event stored with it does not matter."""
        await self.events.accept([make_event(self.app_id)], [job])

    async def claim(self, now: int = NOW) -> list[Job]:
        """Claim what is due of this app."""
        jobs: list[Job] = []
        for pool in (DECISIONS, AUDIENCES, Channel.STUB):
            jobs += await self.queue.claim(pool, self.app_id, EACH_LANE, now=now, until=now + LEASE)
        return sorted(jobs, key=lambda job: job.id)

    async def claimed(self, **changes: Any) -> tuple[Event, Job]:
        """Store an event, and claim its job."""
        event = await self.accept(**changes)
        (job,) = await self.claim()
        return event, job

    async def write(self, *outcomes: JobOutcome, now: int = NOW) -> list[bool | ClarionError]:
        return await self.outcomes.write(outcomes, now)

    async def due_times(self, ids: Iterable[str]) -> dict[str, int]:
        """Return when jobs are due, of those that there are."""
        rows = await self.engine.fetch(SELECT_DUE, ids=keys_of(ids))
        return {row[0]: row[1] for row in rows}


@dataclass
class FixedChannels:
    """The `Channels` and `AppChannels` ports: the same senders for every app."""

    senders: Mapping[Channel, Sender]
    disabled: list[tuple[str, str]] = field(default_factory=list)

    @property
    def platforms(self) -> frozenset[str]:
        return frozenset({"clarion", "ios"} if Channel.PUSH in self.senders else {"clarion"})

    @property
    def available(self) -> frozenset[Channel]:
        return frozenset({Channel.IN_APP, Channel.PUSH, *self.senders})

    async def find(self, _app_id: str) -> "FixedChannels":
        return self

    async def disable(
        self, _app_id: str, _channel: Channel, name: str, reason: str, _since: int | None = None
    ) -> None:
        self.disabled.append((name, reason))

    def find_addresses(self, channel: Channel, _type: str, user: User) -> tuple[Address, ...]:
        if channel is Channel.WEBHOOK:
            return (Address("main", ""),)
        value = find_address(channel, user)
        return () if value is None else (Address("", value),)

    async def send(
        self, channel: Channel, message: OutgoingMessage, _only: str | None = None
    ) -> tuple[Try, ...]:
        try:
            return (Try(channel.value, await self.senders[channel].send(message)),)
        except Exception as error:  # noqa: BLE001 - as for a real provider
            failed = Unknown(error_code="provider_failed", error_message=type(error).__name__)
            return (Try(channel.value, failed),)


async def find_no_caps(_app_id: str) -> FrequencyCaps:
    return FrequencyCaps()


def build_pipeline(
    engine: Engine,
    clock: Clock,
    senders: Mapping[Channel, Sender],
    on_inbox_changed: Callable[[str, str], None] = lambda _app_id, _user_id: None,
    is_live: Callable[[], bool] = lambda: True,
) -> Pipeline:
    """Build the real pipeline, as the server does."""
    connections = Connections()
    dispatch = Dispatch(
        messages=SqlMessages(engine),
        broadcasts=Broadcasts(engine),
        connections=connections,
        clock=clock,
        metrics=GatewayMetrics(CollectorRegistry()),
        stored_limit=1_000,
    )
    registry = Registry(Devices(engine), connections, clock, Vault(bytes(32)))
    ports = PipelinePorts(
        events=SqlEvents(engine),
        queue=SqlQueue(engine),
        notifications=SqlNotificationReader(engine),
        claims=SqlClaims(engine),
        outcomes=SqlOutcomes(engine),
        deliveries=SqlDeliveries(engine),
        users=Users(engine),
        segments=Segments(engine),
        devices=Devices(engine),
        broadcasts=Broadcasts(engine),
        catalog=Catalog(
            Types(engine), Categories(engine), Templates(engine), clock, DirectSandbox()
        ),
        clock=clock,
        channels=FixedChannels(senders),
        gateway=dispatch,
        registry=registry,
        push_devices=PushDevices(dispatch, Vault(bytes(32)), clock),
        is_live=is_live,
    )
    return Pipeline(
        ports,
        on_inbox_changed=on_inbox_changed,
        queue_age_limit_s=3600,
        app_waiting=1_000_000,
        has_workers=True,
        find_caps=find_no_caps,
    )


async def finish_sending() -> None:
    """Wait for the attempts under way."""
    while sending := [each for each in asyncio.all_tasks() if is_sending(each)]:
        await asyncio.gather(*sending)


def is_sending(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__qualname__", "") == "Deliverer._send"


async def drain(pipeline: Pipeline) -> int:
    """Do all due jobs, and return how many there were."""
    done = 0
    while True:
        await pipeline.backlog.measure()
        turns = [each async for each in _work(pipeline)]
        await finish_sending()
        if not any(turns):
            return done
        done += sum(turns)


async def _work(pipeline: Pipeline) -> AsyncIterator[int]:
    """Yield how many jobs each turn does, until no app has one."""
    for worker in pipeline.workers:
        while (count_done := await worker.work()) is not None:
            yield count_done
