"""The composition root: the only place that knows the adapters, and in what order they live."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import signal
from typing import TYPE_CHECKING

from clarion.access import api as access_api
from clarion.access.callers import Callers
from clarion.access.user_tokens import UserTokens
from clarion.catalog.api.templates import TemplatesController
from clarion.catalog.api.types import TypesController
from clarion.data_directory import DataDirectory
from clarion.events.api.events import EventsController, explain
from clarion.events.api.intake import EventDoor
from clarion.events.api.notifications import NotificationsController, list_of_event
from clarion.events.api.waiting import list_waiting
from clarion.house import open_house
from clarion.http import docs as pages
from clarion.http.certificates import DevelopmentTls, load_context
from clarion.http.front import Front
from clarion.http.health import Health
from clarion.http.idempotency import Idempotency
from clarion.http.listeners import HttpListener, check_free
from clarion.http.router import build
from clarion.inbox import api as inbox_api
from clarion.inbox.streams import Streams
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.redis import RedisDependency, RedisLimits, RedisUnavailable, connect
from clarion.people.api.follows import FollowsController
from clarion.people.api.preferences import PreferencesController
from clarion.people.api.users import PeopleController
from clarion.push.api.devices import DevicesController, list_my_devices, list_user_devices
from clarion.push.api.feedback import get_feedback
from clarion.push.api.history import list_messages, see_message
from clarion.push.api.stats import get_stats
from clarion.push.api.topics import TopicsController, subscribe, unsubscribe
from clarion.push.apns import endpoint as apns
from clarion.push.apns.endpoint import ApnsEndpoint
from clarion.settings import flag_of
from clarion.store.opening import sqlite_path
from clarion.telemetry.logs import get_logger
from clarion.telemetry.metrics import Metrics
from clarion.wings import build_gateway, build_keeper, build_live_inbox, build_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from redis.asyncio import Redis

    from clarion.events.pipeline import Pipeline
    from clarion.events.retention import Keeper
    from clarion.house import House
    from clarion.http.fast_routes import FastRoute
    from clarion.nodes.port import Dependency, Limits
    from clarion.push.sweeper import Sweeper
    from clarion.setting_types import Address
    from clarion.settings import Settings
    from clarion.sockets.listener import SocketListener
    from clarion.wings import Gateway, LiveInbox

EXIT_OK = 0
EXIT_BROKEN = 1
# New objects before the youngest are looked at, and how often before the older ones are.
_COLLECT_EVERY = (20_000, 20, 100)
# How long a stop waits for streams to end, before what they come through is closed.
_STREAMS_GRACE_S = 2.0
_ADDRESSES = ("listen", "tls_listen", "gateway_listen", "gateway_tls_listen")

# Every handler of the management API.
ROUTES = (
    *access_api.ROUTES,
    DevicesController,
    list_user_devices,
    list_my_devices,
    list_messages,
    see_message,
    TopicsController,
    subscribe,
    unsubscribe,
    get_feedback,
    get_stats,
    EventsController,
    explain,
    NotificationsController,
    list_of_event,
    list_waiting,
    PeopleController,
    PreferencesController,
    FollowsController,
    TypesController,
    TemplatesController,
    *inbox_api.ROUTES,
)


def _parts(
    house: House,
    gateway: Gateway,
    inbox: LiveInbox,
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
        "on_user_changed": pipeline.replan,
        "explaining": pipeline.explaining,
        "wake": pipeline.wake,
        "events": house.events,
        "notifications": house.notifications,
        "deliveries": house.deliveries,
        "inboxes": house.inboxes,
        "inbox_actions": inbox.actions,
    }


def _build_operation(
    settings: Settings, house: House, redis: Redis | None, metrics: Metrics
) -> Health:
    metrics.watch_writer(house.engine.commit)
    redis_dependency: Dependency | None = RedisDependency(redis) if redis else None
    return Health(
        server_id=settings.server_id,
        database=house.engine,
        others={"redis": redis_dependency},
        clock=house.clock,
        metrics=metrics,
    )


class Server:
    """Clarion, serving until it is told to stop."""

    def __init__(
        self,
        settings: Settings,
        annex: Callable[[House], tuple[FastRoute, ...]] | None = None,
    ) -> None:
        self._settings = settings
        self._annex = annex
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
            inbox = build_live_inbox(settings, house, callers.identify)
            metrics.watch_inbox(inbox.live)
            gateway = build_gateway(settings, house, metrics, inbox)
            pipeline = build_pipeline(settings, house, metrics, inbox)
            if sqlite_path(settings.database_url):
                await pipeline.take_over()
            front = self._build_front(
                house, redis, operation, gateway, metrics, inbox, callers, pipeline
            )
            listeners = await self._listen(front, gateway.listener, tls)
            keeper = build_keeper(settings, house)
            working = _start_work(
                stack, (gateway.sweeper, keeper, inbox.live, gateway.listener), pipeline
            )
            self._handle_signals()
            _calm_collector()
            get_logger().info("ready", server_id=settings.server_id)
            on_ready()
            await self._stop.wait()
            await self._shut(operation, listeners, gateway.listener, inbox)
            pipeline.stop()
            await asyncio.wait((working,), timeout=settings.grace_s)
        get_logger().info("stopped", exit_code=self._exit_code)
        return self._exit_code

    def _take_place(self, stack: contextlib.AsyncExitStack) -> tuple[Path, Path]:
        """Make sure that the folder and the addresses are ours; return the certificate."""
        settings = self._settings
        folder = DataDirectory(settings.data)
        folder.ensure()
        if sqlite_path(settings.database_url):
            stack.enter_context(folder.lock())
        check_free(_addresses(settings))
        return _certificate(settings, folder)

    def _build_front(
        self,
        house: House,
        redis: Redis | None,
        operation: Health,
        gateway: Gateway,
        metrics: Metrics,
        inbox: LiveInbox,
        callers: Callers,
        pipeline: Pipeline,
    ) -> Front:
        door = ApnsEndpoint(
            intake=gateway.intake,
            channels=gateway.channels,
            clock=house.clock,
            is_stopping=lambda: operation.is_stopping,
        )
        limits: Limits = RedisLimits(redis, MemoryLimits()) if redis else MemoryLimits()
        idempotency = Idempotency(house.vault, house.clock)
        routes = (
            *operation.routes,
            *Streams(house.inboxes, screens.live, house.clock).routes,
            *EventDoor(pipeline.accepting, idempotency).routes,
            *pages.routes(),
            *(self._annex(house) if self._annex else ()),
        )
        return Front(
            routes=routes,
            prefixes={
                apns.DEVICE_PREFIX: door.push,
                apns.BROADCAST_PREFIX: door.broadcast,
                apns.CHANNELS_PREFIX: door.manage,
            },
            framework=build(
                ROUTES, _parts(house, gateway, screens, callers, pipeline, idempotency), routes
            ),
            authenticator=callers,
            limits=limits,
            clock=house.clock,
            metrics=metrics,
            settings=self._settings,
        )

    async def _listen(
        self, front: Front, sockets: SocketListener, tls: tuple[Path, Path]
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
        operation: Health,
        listeners: list[HttpListener],
        sockets: SocketListener,
        inbox: LiveInbox,
    ) -> None:
        """Stop taking work, finish what is under way; the house flushes and closes behind us."""
        operation.is_stopping = True
        get_logger().info("stopping", grace_s=self._settings.grace_s)
        clock = asyncio.get_running_loop().time
        ends = clock() + self._settings.grace_s
        # First the streams: an HTTP listener would wait for an open one without end.
        await inbox.live.stop(min(self._settings.grace_s / 2, _STREAMS_GRACE_S))
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
    loops: tuple[Sweeper | Keeper | LiveClients | SocketListener, ...],
    pipeline: Pipeline,
) -> asyncio.Task[None]:
    """Begin what goes on beside the requests; return the work that is finished, not cut off."""
    for loop in loops:
        stack.callback(_start(loop.run()).cancel)
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


def _certificate(settings: Settings, folder: DataDirectory) -> tuple[Path, Path]:
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
