"""The composition root: the only place that knows the adapters, and in what order they live."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import signal
from typing import TYPE_CHECKING

from clarion.access.callers import Callers
from clarion.access.user_tokens import UserTokens
from clarion.data_directory import DataFolder
from clarion.events.api import intake as event_door
from clarion.events.api.intake import EventDoor
from clarion.house import open_house
from clarion.http import docs as pages
from clarion.http import router as framework
from clarion.http.certificates import DevelopmentTls, load_context
from clarion.http.front import Front
from clarion.http.health import Operation
from clarion.http.listeners import HttpListener, check_free
from clarion.idempotency.requests import Idempotency
from clarion.inbox import streams
from clarion.inbox.screens import build_screens
from clarion.inbox.streams import Streams
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.redis import RedisDependency, RedisLimits, RedisUnavailable, connect
from clarion.push.apns import endpoint as apns
from clarion.push.apns.endpoint import ApnsDoor
from clarion.settings import flag_of
from clarion.store.opening import sqlite_path
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import Metrics
from clarion.wings import build_gateway, build_keeper, build_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from redis.asyncio import Redis

    from clarion.events.pipeline import Pipeline
    from clarion.events.retention import Keeper
    from clarion.house import House
    from clarion.inbox.screens import Screens
    from clarion.nodes.port import Dependency, Limits
    from clarion.push.sockets import Sockets
    from clarion.push.sweeper import Sweeper
    from clarion.setting_types import Address
    from clarion.settings import Settings
    from clarion.wings import Gateway

EXIT_OK = 0
EXIT_BROKEN = 1
# New objects before the youngest are looked at, and how often before the older ones are.
_COLLECT_EVERY = (20_000, 20, 100)
_ADDRESSES = ("listen", "tls_listen", "gateway_listen", "gateway_tls_listen")


def _parts(
    house: House,
    gateway: Gateway,
    screens: Screens,
    callers: Callers,
    pipeline: Pipeline,
    idempotency: Idempotency,
) -> dict[str, object]:
    """Return what handlers ask for, by the names by which they do."""
    return {
        "keys": house.keys,
        "clock": house.clock,
        "callers": callers,
        "idempotency": idempotency,
        "devices": house.devices,
        "registry": gateway.registry,
        "connections": gateway.connections,
        "dispatch": gateway.dispatch,
        "history": house.history,
        "topics": house.topics,
        "feedback": house.feedback,
        "statistics": house.statistics,
        "users": house.users,
        "types": house.types,
        "templates": house.templates,
        "catalog": house.catalog,
        "on_person_changed": pipeline.replan,
        "explaining": pipeline.explaining,
        "wake": pipeline.wake,
        "events": house.events,
        "facts": house.facts,
        "deliveries": house.deliveries,
        "inboxes": house.inboxes,
        "acts": screens.acts,
    }


def _build_operation(
    settings: Settings, house: House, redis: Redis | None, metrics: Metrics
) -> Operation:
    metrics.watch_writer(house.engine.commit)
    redis_dependency: Dependency | None = RedisDependency(redis) if redis else None
    return Operation(
        server_id=settings.server_id,
        database=house.engine,
        others={"redis": redis_dependency},
        clock=house.clock,
        metrics=metrics,
    )


class Server:
    """Clarion, serving until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._exit_code = EXIT_OK

    def stop(self) -> None:
        """Begin to stop; a second time changes nothing."""
        self._stop.set()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> int:
        """Serve until `stop`, and return the exit code."""
        settings = self._settings
        async with contextlib.AsyncExitStack() as stack:
            tls = self._take_place(stack)
            house = await stack.enter_async_context(open_house(settings, self._break))
            redis = await _open_redis(settings, stack)
            metrics = Metrics()
            operation = _build_operation(settings, house, redis, metrics)
            callers = Callers(house.keys, UserTokens(house.apps, house.vault), house.clock)
            screens = build_screens(settings, house.inboxes, house.clock, callers.identify)
            metrics.watch_inbox(screens.live)
            gateway = build_gateway(settings, house, metrics, screens)
            pipeline = build_pipeline(settings, house, metrics, screens)
            if sqlite_path(settings.database_url):
                await pipeline.take_over()
            front = self._build_front(
                house, redis, operation, gateway, metrics, screens, callers, pipeline
            )
            listeners = await self._listen(front, gateway.sockets, tls)
            keeper = build_keeper(settings, house)
            working = _start_work(stack, (gateway.sweeper, keeper), screens, pipeline)
            self._handle_signals()
            _calm_collector()
            get_logger().info("ready", server_id=settings.server_id)
            on_ready()
            await self._stop.wait()
            await self._shut(operation, listeners, gateway.sockets, screens)
            pipeline.stop()
            await asyncio.wait((working,), timeout=settings.grace_s)
        get_logger().info("stopped", exit_code=self._exit_code)
        return self._exit_code

    def _take_place(self, stack: contextlib.AsyncExitStack) -> tuple[Path, Path]:
        """Make sure that the folder and the addresses are ours; return the certificate."""
        settings = self._settings
        folder = DataFolder(settings.data)
        folder.ensure()
        if sqlite_path(settings.database_url):
            stack.enter_context(folder.lock())
        check_free(_addresses(settings))
        return _certificate(settings, folder)

    def _build_front(
        self,
        house: House,
        redis: Redis | None,
        operation: Operation,
        gateway: Gateway,
        metrics: Metrics,
        screens: Screens,
        callers: Callers,
        pipeline: Pipeline,
    ) -> Front:
        door = ApnsDoor(
            intake=gateway.intake,
            channels=gateway.channels,
            clock=house.clock,
            is_stopping=lambda: operation.is_stopping,
        )
        limits: Limits = RedisLimits(redis, MemoryLimits()) if redis else MemoryLimits()
        idempotency = Idempotency(house.vault, house.clock)
        events = EventDoor(pipeline.accepting, idempotency)
        return Front(
            routes={
                ("GET", "/health"): operation.health,
                ("GET", "/ready"): operation.ready,
                ("GET", "/metrics"): operation.metrics,
                ("GET", streams.PATH): Streams(house.inboxes, screens.live, house.clock).open,
                ("POST", event_door.PATH): events.accept,
                ("POST", event_door.BATCH_PATH): events.accept_batch,
                **pages.routes(),
            },
            prefixes={
                apns.DEVICE_PREFIX: door.push,
                apns.BROADCAST_PREFIX: door.broadcast,
                apns.CHANNELS_PREFIX: door.manage,
            },
            framework=framework.build(
                _parts(house, gateway, screens, callers, pipeline, idempotency)
            ),
            callers=callers,
            limits=limits,
            clock=house.clock,
            metrics=metrics,
            settings=self._settings,
        )

    async def _listen(
        self, front: Front, sockets: Sockets, tls: tuple[Path, Path]
    ) -> list[HttpListener]:
        settings, (certificate, key) = self._settings, tls
        headers = settings.max_header_bytes
        listeners = []
        if "gateway" in settings.roles and settings.gateway_listen:
            await sockets.listen(settings.gateway_listen)
        if "gateway" in settings.roles and settings.gateway_tls_listen:
            await sockets.listen(settings.gateway_tls_listen, load_context(certificate, key))
        if settings.tls_listen:
            listeners.append(
                HttpListener(
                    front,
                    settings.tls_listen,
                    max_header_bytes=headers,
                    certificate=certificate,
                    key=key,
                )
            )
        # The plain one last: when `/ready` answers there, everything is open.
        listeners.append(HttpListener(front, settings.listen, max_header_bytes=headers))
        for listener in listeners:
            await listener.start(self._break)
        return listeners

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _shut(
        self,
        operation: Operation,
        listeners: list[HttpListener],
        sockets: Sockets,
        screens: Screens,
    ) -> None:
        """Stop taking work, finish what is under way; the house flushes and closes behind us."""
        operation.is_stopping = True
        get_logger().info("stopping", grace_s=self._settings.grace_s)
        clock = asyncio.get_running_loop().time
        ends = clock() + self._settings.grace_s
        await screens.stop(self._settings.grace_s)
        grace_s = max(0.0, ends - clock())
        await asyncio.gather(
            sockets.stop(grace_s),
            *(listener.stop(grace_s) for listener in listeners),
        )

    def _break(self, message: str) -> None:
        """Stop with an error: what cannot be stored must not be accepted."""
        get_logger().error("broken", message=message)
        self._exit_code = EXIT_BROKEN
        self._stop.set()


def _start_work(
    stack: contextlib.AsyncExitStack,
    sweepers: tuple[Sweeper, Keeper],
    screens: Screens,
    pipeline: Pipeline,
) -> asyncio.Task[None]:
    """Begin what goes on beside the requests; return the work that is finished, not cut off."""
    for sweeper in sweepers:
        stack.callback(_start(sweeper.run()).cancel)
    screens.start(stack)
    return _start(pipeline.run())


def _start(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


def _calm_collector() -> None:
    """Look for garbage in cycles more seldom, and not among what was made to stay.

    Requests and connections leave next to none behind; by default, a third of the processor time of
    a push went into looking for it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_EVERY)


def _addresses(settings: Settings) -> list[tuple[str, Address]]:
    return [(flag_of(n), a) for n in _ADDRESSES if (a := getattr(settings, n)) is not None]


def _certificate(settings: Settings, folder: DataFolder) -> tuple[Path, Path]:
    if settings.tls_certificate and settings.tls_key:
        load_context(settings.tls_certificate, settings.tls_key)
        return settings.tls_certificate, settings.tls_key
    tls = DevelopmentTls(folder.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    return tls.certificate, tls.key


async def _open_redis(settings: Settings, stack: contextlib.AsyncExitStack) -> Redis | None:
    if not settings.redis:
        return None
    redis = connect(settings.redis)
    stack.push_async_callback(redis.aclose)
    try:
        await RedisDependency(redis).check()
    except RedisUnavailable:
        get_logger().warning(
            "redis_unreachable", effect="this node counts for itself until it is back"
        )
    return redis
