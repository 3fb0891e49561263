"""The composition root: what a node consists of, and the order in which it starts and stops.

`stores.py` has the adapters of the store, `services.py` the services that use them, `routes.py` and
`management.py` every HTTP endpoint. No other module knows which adapter implements a port.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from clarion.app.housekeeping import list_tasks
from clarion.app.listeners import Listeners
from clarion.app.measurements import list_measurements
from clarion.app.processes.gathered_metrics import GatheredMetrics
from clarion.app.processes.member import Member
from clarion.app.routes import build_front
from clarion.app.services import Services
from clarion.app.stores import Stores, open_stores
from clarion.clock import Clock
from clarion.http.certificates import DevelopmentTls, load_context
from clarion.http.front import Front
from clarion.http.health import Health
from clarion.http.listeners import check_free
from clarion.nodes.bus import Bus, NoBus
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.port import Limits
from clarion.nodes.redis.breaker import RedisBreaker, RedisUnavailable, make_breaker
from clarion.nodes.redis.bus import RedisBus
from clarion.nodes.redis.limits import RedisLimits
from clarion.push.catch_up import CatchUp
from clarion.push.device_changes import DeviceChanges
from clarion.push.recent_messages import RecentMessages
from clarion.settings import Settings
from clarion.store.opening import sqlite_path
from clarion.store.postgres.clock import DatabaseClock
from clarion.system import descriptors
from clarion.system.child_process import Child
from clarion.system.data_directory import DataDirectory
from clarion.system.supervisor import Supervisor
from clarion.telemetry.logs import get_logger
from clarion.telemetry.trace_settings import open_tracer
from clarion.telemetry.traces import Tracer

EXIT_OK = 0
EXIT_BROKEN = 1
# How long a stop waits for inbox streams to end, before it closes the listeners under them.
_STREAMS_GRACE_S = 2.0
# Allocations before the youngest objects are searched for cycles, and how often the older ones are.
_GC_THRESHOLDS = (20_000, 20, 100)
# The least that Python allows to set.
_DIGITS = sys.int_info.str_digits_check_threshold

# Called with the open database before anything uses it.
SetUp = Callable[[Stores, Settings], Awaitable[None]]


class Server:
    """A node: serves until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        set_up: SetUp | None = None,
        member: Member | None = None,
        writer: Child | None = None,
    ) -> None:
        self._settings = settings
        self._set_up = set_up
        self._member = member
        self._writer = writer
        self._stop = asyncio.Event()
        self._exit_code = EXIT_OK
        self._reason = ""

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or a broken store; return the exit code."""
        settings, member, supervisor = self._settings, self._member, Supervisor()
        async with contextlib.AsyncExitStack() as stack:
            tls = _claim_directory_and_addresses(settings, stack, is_member=member is not None)
            if member:
                await stack.enter_async_context(
                    member.join(partial(self._begin_stop, "the parent process has ended"))
                )
            _raise_descriptor_limit()
            stores = await self._open_stores(stack)
            redis = await _open_redis(settings, stores, stack)
            bus = self._open_bus(redis, stores, stack)
            limits = _make_limits(redis, stores.clock)
            services = Services(
                settings, stores, supervisor, bus, limits, _open_traces(settings, stack)
            )
            stack.push_async_callback(services.close)
            health = Health(
                server_id=settings.server_id,
                database=stores.engine,
                others={"redis": redis, "bus": bus if isinstance(bus, RedisBus) else None},
                clock=stores.clock,
                metrics=services.metrics,
                find_failing_loops=supervisor.find_failing,
                is_of_tests=services.virtual_time is not None,
                membership=services.membership if stores.node_id else None,
                gather_metrics=_gather_metrics(member, services),
                are_all_ready=member.are_all_ready if member else lambda: True,
            )
            front = build_front(settings, stores, services, health, limits)
            listeners = Listeners(front, services, settings, stores.clock, member)
            await _begin_work(settings, services)
            stack.push_async_callback(supervisor.stop, 0)
            _start_redis(supervisor, services, redis)
            await listeners.open(tls, self._fail)
            _start_loops(supervisor, services, stores, settings)
            _watch(listeners, health, supervisor)
            self._handle_signals()
            _tune_interpreter()
            self._report_ready()
            await self._wait_and_complete(front)
            health.is_stopping = True
            await self._shut_down(listeners, services, supervisor)
        get_logger().info("process_stopped" if member else "stopped", exit_code=self._exit_code)
        return self._exit_code

    async def _wait_and_complete(self, front: Front) -> None:
        """Build the parts that are not needed to be ready, and wait for the stop."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._complete(front))
            await self._stop.wait()

    async def _complete(self, front: Front) -> None:
        try:
            await front.complete()
        except Exception:  # noqa: BLE001 - without a part of its API it must not go on
            get_logger().exception("not_built")
            self._fail("the management API could not be built")
        gc.freeze()

    async def _open_stores(self, stack: contextlib.AsyncExitStack) -> Stores:
        opening = open_stores(self._settings, self._fail, self._writer)
        stores = await stack.enter_async_context(opening)
        if self._set_up:
            await self._set_up(stores, self._settings)
        return stores

    def _open_bus(
        self, redis: RedisBreaker | None, stores: Stores, stack: contextlib.AsyncExitStack
    ) -> Bus:
        """Return the bus to other nodes; on SQLite these can only be processes of our own."""
        is_alone = sqlite_path(self._settings.database_url) is not None
        if redis and not is_alone:
            name, node_id = self._settings.server_id, stores.node_id or ""
            bus = RedisBus(redis, stores.clock, name=name, node_id=node_id)
            stack.push_async_callback(bus.close)
            return bus
        return self._member.bus if self._member else NoBus(is_alone=is_alone)

    async def _shut_down(
        self,
        listeners: Listeners,
        services: Services,
        supervisor: Supervisor,
    ) -> None:
        """Accept nothing more, and finish running work within the grace period."""
        grace_s = self._settings.grace_s
        get_logger().info("stopping", reason=self._reason, grace_s=grace_s)
        if self._exit_code == EXIT_OK:
            await asyncio.sleep(self._settings.drain_s)
        clock = asyncio.get_running_loop().time
        ends_at = clock() + grace_s
        # Clients find another node, if there is one; a node alone is back the sooner it stops.
        is_gentle = not sqlite_path(self._settings.database_url)
        # An HTTP listener would wait for an open stream forever.
        await services.live_clients.stop(
            min(grace_s / 2, _STREAMS_GRACE_S), spread_s=grace_s / 4 if is_gentle else 0.0
        )
        await listeners.stop(max(0.0, ends_at - clock()), is_gentle=is_gentle)
        services.pipeline.stop()
        await supervisor.stop(grace_s)
        await services.membership.leave()
        await services.audit_loop.stop()

    def _report_ready(self) -> None:
        server_id = self._settings.server_id
        if self._member:  # the parent says when all are ready
            get_logger().info("process_ready", server_id=server_id, pid=os.getpid())
            self._member.report_ready()
        else:
            get_logger().info("ready", server_id=server_id)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._begin_stop, number.name)

    def _begin_stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._stop.set()

    def _fail(self, message: str) -> None:
        """Stop with an error: what cannot be stored must not be accepted."""
        get_logger().error("broken", message=message)
        self._exit_code = EXIT_BROKEN
        self._begin_stop(message)


async def _begin_work(settings: Settings, services: Services) -> None:
    if sqlite_path(settings.database_url):
        await services.pipeline.take_over()
    await services.membership.join()


def _watch(listeners: Listeners, health: Health, supervisor: Supervisor) -> None:
    supervisor.start("http_connections", listeners.run)
    supervisor.start("dependency_checks", health.run)


def _start_loops(
    supervisor: Supervisor, services: Services, stores: Stores, settings: Settings
) -> None:
    supervisor.start("loop_watch", services.loop_watch.run)
    if isinstance(stores.clock, DatabaseClock):
        supervisor.start("clock", stores.clock.run)
    supervisor.start("socket_heartbeats", services.sockets.run)
    supervisor.start("inbox_poll", services.live_clients.run)
    supervisor.start("inactive_users", services.active_users.run)
    supervisor.start("deleted_apps", services.deleted_apps.run)
    supervisor.start("ended_keys", services.ended_keys.run)
    watch_other_nodes(supervisor, services, stores.clock)
    supervisor.start("membership", services.membership.run)
    supervisor.start("lease_renewal", services.pipeline.renew_leases)
    if (follow_clock := services.pipeline.follow_clock) is not None:
        supervisor.start("clock_steps", follow_clock)
    supervisor.start("queue_age", services.pipeline.backlog.watch)
    for name, loop in services.pipeline.worker_loops().items():
        supervisor.start(name, loop, drains=True)
    supervisor.start("audit_log", services.audit_loop.run)
    tasks = list_tasks(
        stores,
        settings,
        dispatch=services.dispatch,
        eraser=services.eraser,
        last_seen=services.last_seen,
        used_keys=services.callers.used,
        membership=services.membership,
    )
    if services.virtual_time is not None:
        services.virtual_time.clean_ups.extend(task.run_once for task in tasks)
    for task in (*tasks, *list_measurements(stores, services, settings)):
        supervisor.start(task.name, task.run)


def watch_other_nodes(supervisor: Supervisor, services: Services, clock: Clock) -> None:
    """Poll for changes by other nodes, unless there are none."""
    bus = services.bus
    if isinstance(bus, NoBus) and bus.is_connected:
        return
    changes = DeviceChanges(services.registry, services.deleted_apps.poll, bus)
    supervisor.start("device_changes", changes.run)
    supervisor.start("told_device_changes", changes.run_announced)
    recent = RecentMessages(services.dispatch, bus, clock)
    supervisor.start("recent_messages", recent.run)
    supervisor.start("catch_up", CatchUp(services.dispatch, services.connections, bus).run)


def _start_redis(supervisor: Supervisor, services: Services, redis: RedisBreaker | None) -> None:
    if redis:
        redis.on_change = services.metrics.dependency_health.labels("redis").set
        redis.on_change(int(not redis.is_open))
        services.circuits.watch(redis.list_circuits)
        supervisor.start("redis_probe", redis.run)
    if isinstance(services.bus, RedisBus):
        services.bus.list_living = lambda: {x.id: x.name for x in services.membership.nodes}
        services.metrics.watch_bus(services.bus)
        for name, loop in services.bus.loops.items():
            supervisor.start(name, loop)


def _raise_descriptor_limit() -> None:
    limit = descriptors.raise_limit()
    if limit < descriptors.LOW:
        get_logger().warning("few_descriptors", limit=limit, advice=descriptors.ADVICE)


def _claim_directory_and_addresses(
    settings: Settings, stack: contextlib.AsyncExitStack, *, is_member: bool
) -> tuple[Path, Path]:
    """Make sure that no other server has them; return certificate and key.

    For one of several processes, their parent has done so.
    """
    directory = DataDirectory(settings.data)
    directory.ensure()
    directory.reserve(for_tests=settings.clock == "test")
    if sqlite_path(settings.database_url):
        stack.enter_context(directory.lock())
    if not is_member:
        check_free(settings.addresses)
    return prepare_certificate(settings, directory)


def prepare_certificate(settings: Settings, directory: DataDirectory) -> tuple[Path, Path]:
    """Return the files of the certificate and its key; if none is set, one for development."""
    if settings.tls_certificate and settings.tls_key:
        load_context(settings.tls_certificate, settings.tls_key)
        return settings.tls_certificate, settings.tls_key
    tls = DevelopmentTls(directory.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    return tls.certificate, tls.key


async def _open_redis(
    settings: Settings, stores: Stores, stack: contextlib.AsyncExitStack
) -> RedisBreaker | None:
    if not settings.redis:
        return None
    breaker = make_breaker(settings.redis, stores.installation.id)
    stack.callback(breaker.client.close)
    with contextlib.suppress(RedisUnavailable):  # it is logged
        await breaker.check()
    return breaker


def _make_limits(redis: RedisBreaker | None, clock: Clock) -> Limits:
    own = MemoryLimits(clock)
    return own if redis is None else RedisLimits(redis, own)


def _open_traces(settings: Settings, stack: contextlib.AsyncExitStack) -> Tracer:
    tracer = open_tracer(settings.server_id)
    stack.push_async_callback(tracer.close)
    return tracer


def _gather_metrics(
    member: Member | None, services: Services
) -> Callable[[], Awaitable[bytes]] | None:
    return GatheredMetrics(member.bus, services.metrics.render).gather if member else None


def _tune_interpreter() -> None:
    """Search for cycles less often, and not among the objects that stay; limit integers in JSON.

    Requests and connections leave almost no cycles; with the default thresholds a third of the
    processor time of a push went into the search. To read and write an integer takes a time that
    grows with the square of its digits: those in a body of 1 MiB, of 4,000 digits each, took 70 ms.
    """
    # Without a search before it: the start leaves little garbage, and would take longer.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.set_int_max_str_digits(_DIGITS)
