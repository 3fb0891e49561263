"""One node of Clarion in a run: the real services, on the simulated disk and network."""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, NamedTuple

from picows import WSListener
from prometheus_client import CollectorRegistry

from clarion.access.deleted_apps import DeletedApps
from clarion.access.sql import Apps
from clarion.access.vault import Vault
from clarion.app.housekeeping import CHUNK, Task
from clarion.app.server import watch_other_nodes
from clarion.app.stores import NODE_ID_LENGTH
from clarion.app.tables import PERSONAL
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import Channel
from clarion.catalog.sql import Categories, Templates, Types
from clarion.channels.gateway import PushDevices
from clarion.channels.port import Sender
from clarion.clock import Clock, SteadyClock
from clarion.events.ledger import LedgerCheck
from clarion.events.model import AUDIENCES, DECISIONS
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.events.sql.claims import SqlClaims
from clarion.events.sql.events import SqlEvents
from clarion.events.sql.jobs import SqlQueue
from clarion.events.sql.ledger import SqlLedger
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.events.sql.retention import SqlRetention
from clarion.events.tables import DEDUPES, LIMIT_COUNTS
from clarion.history.sql.deliveries import SqlDeliveries
from clarion.history.sql.notifications import SqlNotificationReader
from clarion.history.sql.retention import find_old
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.nodes.bus import ALONE, Bus
from clarion.nodes.membership import SharedMembership, SoleNode
from clarion.nodes.model import Node as Member
from clarion.nodes.port import Membership
from clarion.nodes.redis.breaker import RedisBreaker, RedisUnavailable, make_breaker
from clarion.nodes.redis.bus import RedisBus
from clarion.nodes.sql import NodeRecords
from clarion.people.active_users import ActiveUsers
from clarion.people.erasure.eraser import Eraser
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.erasure.sql.deleted_users import DeletedUsers
from clarion.people.erasure.sql.erasures import Erasures
from clarion.people.segments.sql.segments import Segments
from clarion.people.sql import Users
from clarion.push.acknowledgements import GATHER_S
from clarion.push.connections import Connections
from clarion.push.device_circuits import DeviceCircuits
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages
from clarion.push.sql.topics import Broadcasts
from clarion.sockets.protocol import HEARTBEAT_S
from clarion.store.engine import Engine
from clarion.store.lifecycle.retention import prune
from clarion.system.supervisor import Supervisor
from tests.pipeline import FixedChannels, find_no_caps
from tests.sandbox import DirectSandbox
from tests.simulation.disk import Disk, SharedEngine, SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.loop import NODE, SeededLoop
from tests.simulation.redis import SimulatedRedis

STOP_S = 10.0
# Of each pool that this simulation has work for.
WORKERS = {DECISIONS: 2, AUDIENCES: 1, Channel.STUB.value: 2, Channel.PUSH.value: 2}
VAULT = Vault(bytes(32))


class Site(NamedTuple):
    """What the nodes of a run have around them."""

    loop: SeededLoop
    disk: Disk
    faults: Faults
    clock: Clock
    provider: Sender
    # For how long notifications are kept.
    kept_ms: int
    # If there are several nodes; the disk is that of a database server then.
    redis: SimulatedRedis | None = None


class OffsetClock:
    """The clock of a shared database, as well as a node has measured it."""

    def __init__(self, clock: Clock, offset_ms: int) -> None:
        self._clock, self._offset_ms = clock, offset_ms
        self.monotonic, self.new_id = clock.monotonic, clock.new_id

    def now(self) -> int:
        return self._clock.now() + self._offset_ms


class Node:
    """Serves until it is stopped or crashes; then another one opens the same disk."""

    def __init__(self, number: int, name: str, site: Site) -> None:
        self.number, self.name = number, name
        self.is_ready = False
        # Done when it serves no more, however it ended.
        self.ended = site.loop.create_future()
        self._site, self._loop, self._clock = site, site.loop, site.clock
        self._node_id = ""
        if site.redis is not None:
            self._clock = OffsetClock(site.clock, site.faults.chance.randint(-20, 20))
            self._node_id = site.clock.new_id()[-NODE_ID_LENGTH:]
        self._supervisor = Supervisor()
        self._context = Context()
        self._context.run(NODE.set, number)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on this node."""
        return self._loop.run_on(self.number, work)

    def call(self, delay_s: float, call: Callable[[], object]) -> None:
        """Call something on this node later, unless it has crashed by then."""
        self._loop.call_later(delay_s, call, context=self._context)

    async def start(self) -> None:
        """Open the disk and begin to work, as `clarion.app` does."""
        engine = self.engine = await self._open_engine()
        self._redis, self.bus = await self._open_bus()
        self._build(engine)
        if self._redis is None:
            await self.pipeline.take_over()
        await self.membership.join()
        for name, run in self._list_loops():
            self._supervisor.start(name, run)
        for name, run in self.pipeline.worker_loops().items():
            self._supervisor.start(name, run, drains=True)
        if self._redis is not None:
            watch_other_nodes(self._supervisor, self._as_services, self._clock)
        self.is_ready = True

    @property
    def _as_services(self) -> Any:
        return self

    async def _open_engine(self) -> SimulatedEngine:
        loop, disk, faults, *_ = self._site
        if self._site.redis is not None:
            return SharedEngine(disk, faults)
        return await SimulatedEngine.open(loop, disk, faults, self._break)

    async def _open_bus(self) -> tuple[RedisBreaker | None, Bus]:
        if self._site.redis is None:
            return None, ALONE
        breaker = make_breaker("redis://simulated", "simulated")
        with suppress(RedisUnavailable):
            await breaker.check()
        return breaker, RedisBus(breaker, self._clock, name=self.name, node_id=self._node_id)

    def _list_loops(self) -> list[tuple[str, Callable[[], Any]]]:
        loops: list[tuple[str, Callable[[], Any]]] = [
            ("lease_renewal", self.pipeline.renew_leases),
            ("queue_age", self.pipeline.backlog.watch),
            ("inactive_users", self.active_users.run),
            ("inbox_poll", self.live.run),
            ("membership", self.membership.run),
        ]
        if self.pipeline.follow_clock is not None:
            loops.append(("clock_steps", self.pipeline.follow_clock))
        if self._redis is not None and isinstance(self.bus, RedisBus):
            self.bus.list_living = lambda: {each.id: each.name for each in self.membership.nodes}
            loops += [("redis_probe", self._redis.run), *self.bus.loops.items()]
        return [*loops, *((each.name, each.run) for each in self.tasks)]

    def _join_nodes(self, engine: Engine) -> Membership:
        now = self._clock.now()
        node = Member(self._node_id or self.name, self.name, "", started_at=now, seen_at=now)
        if self._redis is None:
            return SoleNode(node, self._clock)
        return SharedMembership(NodeRecords(engine), self._clock, node, self.pipeline.take_over)

    def _join_caches(self) -> None:
        for cached in (
            self.deleted_apps.deleted,
            self.catalog.forget,
            self.catalog.forget_app,
            self.registry.changed,
        ):
            cached.join(self.bus)

    def _build(self, engine: Engine) -> None:
        clock = self._clock
        self.connections, self.users = Connections(), Users(engine)
        self.devices = Devices(engine)
        self.inboxes = SqlInboxes(engine)
        self.live = LiveClients(self.inboxes, per_user=10, total=100, bus=self.bus)
        self.deleted_apps = DeletedApps(Apps(engine))
        self.inbox = InboxActions(self.inboxes, self.live, clock)
        deleted, self.erasures = (
            DeletedUsers(engine),
            Erasures(engine, VAULT, clock, PERSONAL),
        )
        self.active_users = ActiveUsers(
            self.users,
            clock,
            self._disconnect_user,
            gone=GoneUsers(deleted, self.erasures),
            drop_cached=self._forget_users,
            bus=self.bus,
        )
        self.registry = Registry(
            self.devices, self.connections, clock, VAULT, is_gone=self.active_users.is_gone
        )
        broadcasts = Broadcasts(engine, pause_s=engine.shared_read_pause_s)
        self.dispatch = Dispatch(
            messages=SqlMessages(engine, pause_s=engine.shared_read_pause_s),
            broadcasts=broadcasts,
            connections=self.connections,
            clock=clock,
            metrics=GatewayMetrics(CollectorRegistry()),
            stored_limit=1_000,
            bus=self.bus,
            gather_s=GATHER_S,
            circuits=DeviceCircuits(),
        )
        self.pipeline = self._build_pipeline(engine, broadcasts)
        self._keep_some_workers()
        self.membership = self._join_nodes(engine)
        self._join_caches()
        self.eraser = Eraser(
            deleted=deleted,
            erasures=self.erasures,
            clock=clock,
            scrub=engine.scrub,
            on_deleted=self.change_user,
            on_erased=self.active_users.forget,
            kept_days=30,
        )
        self.endpoint = DeviceEndpoint(
            registry=self.registry,
            dispatch=self.dispatch,
            connections=self.connections,
            clock=clock,
            window_s=60,
        )
        self.events = SqlEvents(engine)
        self.ledger = LedgerCheck(SqlLedger(engine))
        self.tasks = self._list_tasks(engine)

    def _build_pipeline(self, engine: Engine, broadcasts: Broadcasts) -> Pipeline:
        clock = SteadyClock(self._clock) if self._redis is None else self._clock
        self.types, self.templates = Types(engine), Templates(engine)
        self.catalog = Catalog(
            self.types, Categories(engine), self.templates, self._clock, DirectSandbox()
        )
        ports = PipelinePorts(
            events=SqlEvents(engine),
            queue=SqlQueue(engine, self._node_id),
            notifications=SqlNotificationReader(engine),
            claims=SqlClaims(engine),
            outcomes=SqlOutcomes(engine),
            deliveries=SqlDeliveries(engine),
            users=self.users,
            segments=Segments(engine),
            devices=self.devices,
            broadcasts=broadcasts,
            catalog=self.catalog,
            clock=clock,
            channels=FixedChannels({Channel.STUB: self._site.provider}),
            gateway=self.dispatch,
            registry=self.registry,
            push_devices=PushDevices(self.dispatch, VAULT, self._clock),
            node_id=self._node_id,
            is_live=lambda: self.membership.is_live,
        )
        return Pipeline(
            ports,
            on_inbox_changed=self.live.notify,
            queue_age_limit_s=3_600,
            app_waiting=1_000_000,
            has_workers=True,
            find_caps=find_no_caps,
        )

    def _keep_some_workers(self) -> None:
        """Leave out those that would have nothing to do: waking them up takes most of the time."""
        pipeline, left, kept = self.pipeline, Counter(WORKERS), []
        for worker in pipeline.workers:
            if left[worker.pool.name] > 0:
                left[worker.pool.name] -= 1
                kept.append(worker)
        pipeline.workers[:] = kept
        for name in set(pipeline._turns) - set(WORKERS):
            del pipeline._turns[name]

    async def _prune_notifications(self, now: int) -> int:
        """Delete old notifications, as `clarion.app.housekeeping` does."""
        found = await find_old(self.engine, now - self._site.kept_ms, CHUNK)
        for owner, ids in found.items():
            await self.inboxes.forget(*owner, ids)
        return CHUNK if found else 0

    def _list_tasks(self, engine: Engine) -> list[Task]:
        retention = self._retention = SqlRetention(engine)
        steps = {
            "expire_messages": (3.0, lambda now: self.dispatch.expire(now, CHUNK)),
            "run_erasures": (2.0, self.eraser.run_due),
            "prune_dedupes": (5.0, lambda now: prune(engine, DEDUPES, now, CHUNK)),
            "prune_limit_counts": (5.0, lambda now: prune(engine, LIMIT_COUNTS, now, CHUNK)),
            "prune_notifications": (2.0, self._prune_notifications),
            "prune_orphaned_jobs": (60.0, lambda _now: retention.prune_orphaned_jobs(CHUNK)),
        }
        return [
            Task("socket_heartbeats", float(HEARTBEAT_S), self._tick, self._clock),
            *(
                Task(name, every, step, self._clock, lambda: self.membership.is_leading)
                for name, (every, step) in steps.items()
            ),
        ]

    async def _tick(self, _now: int) -> int:
        now = self._clock.monotonic()
        for socket in list(self.endpoint.sockets):
            socket.tick(now)
        await self.endpoint.tick(now)
        return 0

    async def change_user(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user to what waits for them, and to their connections."""
        await self.active_users.check(app_id, user_id)
        await self.pipeline.replan(app_id, user_id)

    def _disconnect_user(self, app_id: str, user_id: str) -> None:
        self.live.disconnect_user(app_id, user_id)
        self.connections.disconnect_user(app_id, user_id)
        self.pipeline.intake.forget_user(app_id, user_id)

    def _forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        self.registry.forget_users(owners)
        for owner in owners:
            self.pipeline.intake.forget_user(*owner)

    def accept(self) -> WSListener:
        """Return the server's side of a new connection."""
        return self.endpoint.accept()

    def crash(self) -> None:
        """End at once: nothing of it runs any more."""
        self.is_ready = False
        self._loop.kill(self.number)
        if not self.ended.done():
            self.ended.set_result(None)

    def _break(self, _message: str) -> None:
        """Stop, as a server does whose writer is gone."""
        self._loop.call_apart(0, self.crash)

    async def stop(self) -> None:
        """Stop as SIGTERM does: finish what is under way."""
        self.is_ready = False
        for socket in list(self.endpoint.sockets):
            socket.cut()
        await self.live.stop(STOP_S)
        self.pipeline.stop()
        await self._supervisor.stop(STOP_S)
        await self.dispatch.tasks.finish(STOP_S)
        await self.membership.leave()
        if isinstance(self.bus, RedisBus):
            await self.bus.close()
        if self._redis is not None:
            self._redis.client.close()
        await self.engine.close()
        self.crash()
