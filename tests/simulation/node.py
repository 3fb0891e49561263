"""One node of Clarion in a run: the real services, on the simulated disk and network."""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from contextvars import Context
from typing import Any

from picows import WSListener
from prometheus_client import CollectorRegistry

from clarion.access.vault import AesVault
from clarion.catalog.catalog import CachedCatalog
from clarion.catalog.model import Channel
from clarion.catalog.sql import SqlCategories, SqlTemplates, SqlTypes
from clarion.channels.gateway import GatewayDevices
from clarion.channels.port import Sender
from clarion.clock import Clock, SteadyClock
from clarion.events.ledger import LedgerCheck
from clarion.events.model import AUDIENCES, DECISIONS
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.events.sql.deliveries import SqlDeliveries
from clarion.events.sql.events import SqlEvents
from clarion.events.sql.jobs import SqlQueue
from clarion.events.sql.ledger import SqlLedger
from clarion.events.sql.notifications import SqlNotificationReader
from clarion.events.sql.outcomes import SqlOutcomes
from clarion.events.sql.retention import SqlRetention
from clarion.housekeeping import CHUNK, Task
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.people.active_users import ActiveUsers
from clarion.people.erasure.eraser import Eraser
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.erasure.sql.deleted_users import SqlDeletedUsers
from clarion.people.erasure.sql.erasures import SqlErasures
from clarion.people.segments.sql.segments import SqlSegments
from clarion.people.sql import SqlUsers
from clarion.personal_data import PERSONAL
from clarion.push.acknowledgements import GATHER_S
from clarion.push.connections import Connections
from clarion.push.device_circuits import DeviceCircuits
from clarion.push.dispatch import Dispatch
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.sql.devices import SqlDevices
from clarion.push.sql.messages import SqlMessages
from clarion.push.sql.topics import SqlBroadcasts
from clarion.sockets.protocol import HEARTBEAT_S
from clarion.store.engine import Engine
from clarion.supervisor import Supervisor
from clarion.telemetry.metrics import GatewayMetrics
from tests.pipeline import FixedChannels, find_no_caps
from tests.sandbox import DirectSandbox
from tests.simulation.disk import Disk, SimulatedEngine
from tests.simulation.faults import Faults
from tests.simulation.loop import NODE, SeededLoop

STOP_S = 10.0
# Of each pool that this simulation has work for.
WORKERS = {DECISIONS: 3, AUDIENCES: 1, Channel.STUB.value: 2, Channel.PUSH.value: 2}
VAULT = AesVault(bytes(32))


class Node:
    """Serves until it is stopped or crashes; then another one opens the same disk."""

    def __init__(
        self,
        number: int,
        loop: SeededLoop,
        disk: Disk,
        faults: Faults,
        clock: Clock,
        provider: Sender,
    ) -> None:
        self.number = number
        self.is_ready = False
        # Done when it serves no more, however it ended.
        self.ended = loop.create_future()
        self._loop, self._disk, self._faults = loop, disk, faults
        self._clock, self._provider = clock, provider
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
        """Open the disk and begin to work."""
        engine = self.engine = await SimulatedEngine.open(
            self._loop, self._disk, self._faults, self._break
        )
        self._build(engine)
        await self.pipeline.take_over()
        for name, run in self._list_loops():
            self._supervisor.start(name, run)
        for name, run in self.pipeline.worker_loops().items():
            self._supervisor.start(name, run, drains=True)
        self.is_ready = True

    def _list_loops(self) -> list[tuple[str, Callable[[], Any]]]:
        loops: list[tuple[str, Callable[[], Any]]] = [
            ("lease_renewal", self.pipeline.renew_leases),
            ("queue_age", self.pipeline.backlog.watch),
            ("inactive_users", self.active_users.run),
        ]
        if self.pipeline.follow_clock is not None:
            loops.append(("clock_steps", self.pipeline.follow_clock))
        return [*loops, *((each.name, each.run) for each in self.tasks)]

    def _build(self, engine: Engine) -> None:
        clock = self._clock
        self.connections, self.users = Connections(), SqlUsers(engine)
        self.devices = SqlDevices(engine)
        self.inboxes = SqlInboxes(engine)
        self.live = LiveClients(self.inboxes, per_user=10, total=100)
        self.inbox = InboxActions(self.inboxes, self.live, clock)
        deleted, self.erasures = (
            SqlDeletedUsers(engine),
            SqlErasures(engine, VAULT, clock, PERSONAL),
        )
        self.active_users = ActiveUsers(
            self.users,
            clock,
            (self._disconnect_user,),
            gone=GoneUsers(deleted, self.erasures),
            forgets=(self._forget_users,),
        )
        self.registry = Registry(
            self.devices, self.connections, clock, VAULT, is_gone=self.active_users.is_gone
        )
        broadcasts = SqlBroadcasts(engine, pause_s=engine.shared_read_pause_s)
        self.dispatch = Dispatch(
            messages=SqlMessages(engine, pause_s=engine.shared_read_pause_s),
            broadcasts=broadcasts,
            connections=self.connections,
            clock=clock,
            metrics=GatewayMetrics(CollectorRegistry()),
            stored_limit=1_000,
            gather_s=GATHER_S,
            circuits=DeviceCircuits(),
        )
        self.pipeline = self._build_pipeline(engine, broadcasts)
        self._keep_some_workers()
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

    def _build_pipeline(self, engine: Engine, broadcasts: SqlBroadcasts) -> Pipeline:
        clock, self.templates = SteadyClock(self._clock), SqlTemplates(engine)
        self.catalog = CachedCatalog(
            SqlTypes(engine), SqlCategories(engine), self.templates, self._clock, DirectSandbox()
        )
        ports = PipelinePorts(
            events=SqlEvents(engine),
            queue=SqlQueue(engine),
            notifications=SqlNotificationReader(engine),
            outcomes=SqlOutcomes(engine),
            deliveries=SqlDeliveries(engine),
            users=self.users,
            segments=SqlSegments(engine),
            devices=self.devices,
            broadcasts=broadcasts,
            catalog=self.catalog,
            clock=clock,
            channels=FixedChannels({Channel.STUB: self._provider}),
            gateway=self.dispatch,
            registry=self.registry,
            push_devices=GatewayDevices(self.dispatch, VAULT, self._clock),
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
        left = Counter(WORKERS)
        kept = []
        for worker in self.pipeline.workers:
            if left[worker.pool.name] > 0:
                left[worker.pool.name] -= 1
                kept.append(worker)
        self.pipeline.workers[:] = kept

    def _list_tasks(self, engine: Engine) -> list[Task]:
        retention = SqlRetention(engine)
        steps = {
            "expire_messages": (10.0, lambda now: self.dispatch.expire(now, CHUNK)),
            "run_erasures": (2.0, self.eraser.run_due),
            "prune_claims": (60.0, lambda now: retention.prune_claims(now, limit=CHUNK)),
            "prune_orphaned_jobs": (60.0, lambda _now: retention.prune_orphaned_jobs(CHUNK)),
            "socket_heartbeats": (float(HEARTBEAT_S), self._tick),
        }
        return [Task(name, every, step, self._clock) for name, (every, step) in steps.items()]

    async def _tick(self, _now: int) -> int:
        now = self._clock.monotonic()
        for socket in self.endpoint.sockets:
            socket.tick(now)
        await self.endpoint.tick(now)
        return 0

    async def change_user(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user to what waits for them, and to their connections."""
        await self.active_users.check(app_id, user_id)
        await self.pipeline.replan(app_id, user_id)

    def _disconnect_user(self, app_id: str, user_id: str) -> None:
        self.connections.disconnect_user(app_id, user_id)
        self.pipeline.intake.forget_user(app_id, user_id)

    def _forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        self.registry.forget_users(owners)

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
        for socket in self.endpoint.sockets:
            socket.cut()
        self.pipeline.stop()
        await self._supervisor.stop(STOP_S)
        await self.dispatch.tasks.finish(STOP_S)
        await self.engine.close()
        self.crash()
