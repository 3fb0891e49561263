"""The composition root: every service, route and loop, and the order in which they start and stop.

`stores.py` has the adapters of the store. No other module knows which adapter fills a port.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import signal
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from clarion import descriptors
from clarion.access.administrators.api import administrators as administrators_api
from clarion.access.administrators.api import keys as admin_keys_api
from clarion.access.administrators.api import second_factors as second_factors_api
from clarion.access.administrators.api import sessions as admin_sessions_api
from clarion.access.administrators.authentication import AdminAuthentication
from clarion.access.administrators.invitations import Invitations
from clarion.access.administrators.passwords import HashingThreads
from clarion.access.administrators.policy import HOUR_MS, MINUTE_MS, SignInPolicy
from clarion.access.administrators.second_factor import CodeChecker, Enrolment
from clarion.access.administrators.sign_in import SignIn
from clarion.access.api import app_keys as app_keys_api
from clarion.access.api import apps as apps_api
from clarion.access.api import keys as keys_api
from clarion.access.api import tickets as tickets_api
from clarion.access.callers import Callers
from clarion.access.deleted_apps import DeletedApps
from clarion.access.origins import AllowedOrigins
from clarion.access.port import Authenticators
from clarion.access.signing import UserTokenSigner
from clarion.access.user_tokens import UserTokens
from clarion.audit import api as audit_api
from clarion.audit.log_file import LogFile
from clarion.audit.loop import AuditLoop
from clarion.audit.operations import ACTIONS
from clarion.catalog.api import templates as templates_api
from clarion.catalog.api import types as types_api
from clarion.channels import api as providers_api
from clarion.channels.gateway import GatewayDevices
from clarion.channels.http_clients import HttpClients
from clarion.channels.kind_table import KINDS
from clarion.channels.port import SenderContext
from clarion.channels.routing import Routing
from clarion.channels.targets import Targets
from clarion.channels.twilio_callbacks import TwilioCallbacks
from clarion.data_directory import DataDirectory
from clarion.demo.page import DemoPage
from clarion.events.api import events as events_api
from clarion.events.api import notifications as notifications_api
from clarion.events.api.intake import EventEndpoint, send_event
from clarion.events.cases import FrequencyCaps
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.housekeeping import list_tasks
from clarion.http import docs, openapi, static_files
from clarion.http.asgi import FastRoute
from clarion.http.auditing import AuditedFramework
from clarion.http.certificates import DevelopmentTls, load_context
from clarion.http.front import Front
from clarion.http.health import Health
from clarion.http.idempotency import Idempotency
from clarion.http.listeners import HttpListener, check_free
from clarion.http.router import build
from clarion.inbox import api as inbox_api
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.sockets import UserEndpoint
from clarion.inbox.streams import Streams
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.port import Limits
from clarion.nodes.redis import RedisBreaker, RedisLimits, RedisUnavailable, connect
from clarion.people.active_users import ActiveUsers
from clarion.people.api import follows as follows_api
from clarion.people.api import preferences as preferences_api
from clarion.people.api import segments as segments_api
from clarion.people.api import users as users_api
from clarion.people.api.batch import UserBatchEndpoint
from clarion.people.api.unsubscribe import UnsubscribeEndpoint
from clarion.people.erasure import api as erasure_api
from clarion.people.erasure.eraser import Eraser
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.last_seen import LastSeen
from clarion.people.unsubscribe import UnsubscribeLinks
from clarion.push.api import devices as devices_api
from clarion.push.api import feedback as feedback_api
from clarion.push.api import history as history_api
from clarion.push.api import stats as stats_api
from clarion.push.api import topics as topics_api
from clarion.push.apns.channels import BroadcastChannels
from clarion.push.apns.endpoint import ApnsEndpoint
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import ProviderTokens
from clarion.push.connections import Connections
from clarion.push.device_changes import DeviceChanges
from clarion.push.dispatch import Dispatch
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.webpush import api as endpoints_api
from clarion.push.webpush.endpoint import WebPushEndpoint
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.matrix import MatrixGateway
from clarion.push.webpush.registry import EndpointRegistry
from clarion.push.webpush.signatures import VapidSignatures
from clarion.settings import Settings
from clarion.sockets.listener import SocketListener
from clarion.store.opening import sqlite_path
from clarion.stores import Stores, open_stores
from clarion.supervisor import Supervisor
from clarion.telemetry.logs import get_logger
from clarion.telemetry.loop_lag import LoopWatch
from clarion.telemetry.metrics import ChannelMetrics, GatewayMetrics, Metrics

EXIT_OK = 0
EXIT_BROKEN = 1
# How long a stop waits for inbox streams to end, before it closes the listeners under them.
_STREAMS_GRACE_S = 2.0
# Allocations before the youngest objects are searched for cycles, and how often the older ones are.
_GC_THRESHOLDS = (20_000, 20, 100)
# The least that Python allows to set.
_DIGITS = sys.int_info.str_digits_check_threshold

# The handlers of the management API.
ROUTES = (
    *keys_api.ROUTES,
    *apps_api.ROUTES,
    *app_keys_api.ROUTES,
    *tickets_api.ROUTES,
    *admin_sessions_api.ROUTES,
    *second_factors_api.ROUTES,
    *admin_keys_api.ROUTES,
    *administrators_api.ROUTES,
    *users_api.ROUTES,
    *erasure_api.ROUTES,
    *preferences_api.ROUTES,
    *follows_api.ROUTES,
    *segments_api.ROUTES,
    *types_api.ROUTES,
    *templates_api.ROUTES,
    *events_api.ROUTES,
    *notifications_api.ROUTES,
    *inbox_api.ROUTES,
    *devices_api.ROUTES,
    *endpoints_api.ROUTES,
    *topics_api.ROUTES,
    *history_api.ROUTES,
    *feedback_api.ROUTES,
    *stats_api.ROUTES,
    *providers_api.ROUTES,
    *audit_api.ROUTES,
)


class Services:
    """Everything between the stores and the listeners.

    Handlers get these attributes by name, beside those of `Stores`.
    """

    def __init__(self, settings: Settings, stores: Stores, supervisor: Supervisor) -> None:
        clock = stores.clock
        self.metrics = Metrics()
        self.idempotency = Idempotency(stores.vault, clock)
        self.live_clients = LiveClients(
            stores.inboxes, per_user=settings.user_streams, total=settings.node_streams
        )
        self.inbox_actions = InboxActions(stores.inboxes, self.live_clients, clock)
        self.connections = Connections()
        self.origins = AllowedOrigins(stores.known_apps, clock)
        self._known_apps = stores.known_apps
        self.deleted_apps = DeletedApps(stores.apps, (self._forget_app,))
        self.active_users = ActiveUsers(
            stores.users,
            clock,
            (self.live_clients.disconnect_user, self.connections.disconnect_user),
            gone=GoneUsers(stores.deleted_users, stores.erasures),
            forgets=(self._forget_users,),
        )
        self.last_seen = LastSeen(stores.users, clock, lambda: self.live_clients.users)
        self.callers = self._build_callers(settings, stores)
        self._build_administrators(settings, stores)
        self.registry = Registry(
            stores.devices,
            self.connections,
            clock,
            stores.vault,
            per_user=settings.user_devices,
            is_gone=self.active_users.is_gone,
        )
        self.endpoint_registry = EndpointRegistry(
            stores.push_endpoints,
            self.registry,
            clock,
            settings.external_url,
            self.deleted_apps,
        )
        self.dispatch = self._build_dispatch(settings, stores)
        self.http_clients = HttpClients(Targets(settings.allow_private_targets))
        self.unsubscribe_links = UnsubscribeLinks(
            stores.directory.read_master_keys(), settings.external_url
        )
        self.channels = self._build_channels(settings, stores)
        self.pipeline = _build_pipeline(settings, stores, self)
        self.explainer = self.pipeline.explainer
        self.eraser = Eraser(
            deleted=stores.deleted_users,
            erasures=stores.erasures,
            clock=clock,
            scrub=stores.engine.scrub,
            on_deleted=self.on_user_changed,
            on_erased=self.active_users.forget,
            kept_days=settings.deleted_user_days,
        )
        self.wake = self.pipeline.wake
        self.sockets = self._build_sockets(settings, stores)
        self.audit_loop = _build_audit_loop(settings, stores)
        self.loop_watch = LoopWatch(self.metrics.loop_lag)
        self._watch(stores, supervisor)

    def _build_administrators(self, settings: Settings, stores: Stores) -> None:
        clock, vault, admins = stores.clock, stores.vault, stores.admins
        self.sign_in_policy = policy = SignInPolicy(
            idle_ms=settings.admin_idle_minutes * MINUTE_MS,
            session_ms=settings.admin_session_hours * HOUR_MS,
            mfa=settings.admin_mfa,
            networks=settings.admin_networks,
        )
        self.hashing = hashing = HashingThreads()
        self.enrolment = Enrolment(admins.factors, hashing, vault, clock)
        self.sign_in = SignIn(
            admins,
            codes=CodeChecker(admins.factors, hashing, vault),
            hashing=hashing,
            policy=policy,
            clock=clock,
        )
        self.invitations = Invitations(admins.links, clock, settings.external_url)
        self.administration = AdminAuthentication(
            admins, apps=stores.apps, policy=policy, clock=clock
        )

    def _watch(self, stores: Stores, supervisor: Supervisor) -> None:
        """Export what the services count by themselves."""
        self.metrics.watch_writer(stores.engine.commit)
        self.metrics.watch_inbox(self.live_clients)
        self.metrics.watch_sandbox(stores.sandbox)
        self.metrics.watch_loops(supervisor.count_restarts)
        self.metrics.watch_stalls(lambda: self.loop_watch.stalls)
        self.metrics.registry.register(self.pipeline.metrics)

    async def on_user_changed(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user to what waits for them, and to their connections."""
        await self.active_users.check(app_id, user_id)
        await self.pipeline.replan(app_id, user_id)

    def _build_callers(self, settings: Settings, stores: Stores) -> Callers:
        return Callers(
            stores.keys,
            UserTokens(stores.known_apps, settings.user_token_hours),
            stores.clock,
            tickets=stores.tickets,
            is_active=self.active_users.is_active,
            on_seen=self.last_seen.note,
        )

    def _build_dispatch(self, settings: Settings, stores: Stores) -> Dispatch:
        return Dispatch(
            messages=stores.messages,
            broadcasts=stores.broadcasts,
            connections=self.connections,
            clock=stores.clock,
            metrics=GatewayMetrics(self.metrics.registry),
            stored_limit=settings.device_stored,
        )

    async def _forget_app(self, app_id: str) -> None:
        """Forget what is cached of a deleted app, and end all its connections."""
        self.callers.forget_app(app_id)
        self._known_apps.forget(app_id)
        await self.connections.disconnect_app(app_id)
        await self.live_clients.disconnect_app(app_id)

    def _forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        """Drop what this node has cached of users who were erased."""
        self.registry.forget_users(owners)
        self.endpoint_registry.forget_users(owners)
        for owner in owners:
            self.pipeline.intake.forget_user(*owner)

    def _build_channels(self, settings: Settings, stores: Stores) -> Routing:
        context = SenderContext(
            clock=stores.clock,
            http=self.http_clients,
            public_url=settings.external_url,
            unsubscribe_url=self.unsubscribe_links.make,
        )
        metrics = ChannelMetrics(self.metrics.registry)
        return Routing(stores.providers, KINDS, context, metrics)

    async def close(self) -> None:
        """Close the connections to providers, and the threads."""
        await self.channels.close()
        await self.http_clients.close()
        self.hashing.close()

    def _build_sockets(self, settings: Settings, stores: Stores) -> SocketListener:
        devices = DeviceEndpoint(
            registry=self.registry,
            dispatch=self.dispatch,
            connections=self.connections,
            clock=stores.clock,
            window_s=settings.low_priority_window_s,
            app_limit=settings.app_devices_connected,
            deleted_apps=self.deleted_apps,
            origins=self.origins,
        )
        users = UserEndpoint(
            inboxes=stores.inboxes,
            actions=self.inbox_actions,
            live=self.live_clients,
            authenticator=self.callers,
            origins=self.origins,
            clock=stores.clock,
        )
        self.metrics.watch_gateway(
            sockets=devices.sockets, connections=self.connections, registry=self.registry
        )
        return SocketListener(
            devices,
            users,
            per_address=settings.address_sockets,
            total=descriptors.share(descriptors.get_limit()).gateway,
        )


def _build_audit_loop(settings: Settings, stores: Stores) -> AuditLoop:
    path = settings.audit_log_path
    log = stores.audit_log
    loop = AuditLoop(log, log.chain, log.keys, LogFile(path) if path else None)
    log.on_written = loop.wake
    return loop


def _build_pipeline(settings: Settings, stores: Stores, services: Services) -> Pipeline:
    ports = PipelinePorts(
        events=stores.events,
        queue=stores.queue,
        notifications=stores.notifications,
        outcomes=stores.outcomes,
        deliveries=stores.deliveries,
        users=stores.users,
        segments=stores.segments,
        devices=stores.devices,
        catalog=stores.catalog,
        clock=stores.clock,
        channels=services.channels,
        gateway=services.dispatch,
        registry=services.registry,
        push_devices=GatewayDevices(services.dispatch, stores.vault, stores.clock),
    )
    return Pipeline(
        ports,
        on_inbox_changed=services.live_clients.notify,
        queue_age_limit_s=settings.queue_age_limit_s,
        app_waiting=settings.app_waiting,
        has_workers="worker" in settings.roles,
        caps=FrequencyCaps(settings.category_per_hour, settings.user_per_hour),
        refused_schemes=settings.refused_schemes,
        deleted_apps=services.deleted_apps,
    )


def _build_apns(
    settings: Settings, stores: Stores, services: Services, health: Health
) -> ApnsEndpoint:
    intake = PushIntake(
        registry=services.registry,
        dispatch=services.dispatch,
        limits=MemoryLimits(),
        clock=stores.clock,
        device_per_minute=settings.device_messages_per_minute,
        app_per_minute=settings.app_messages_per_minute,
    )
    return ApnsEndpoint(
        tokens=ProviderTokens(stores.apps, services.deleted_apps),
        intake=intake,
        channels=BroadcastChannels(
            topics=stores.topics, dispatch=services.dispatch, clock=stores.clock
        ),
        clock=stores.clock,
        is_stopping=lambda: health.is_stopping,
    )


def _build_web_push(
    settings: Settings, stores: Stores, services: Services
) -> tuple[WebPushEndpoint, MatrixGateway]:
    intake = WebPushIntake(
        endpoints=services.endpoint_registry,
        dispatch=services.dispatch,
        history=stores.history,
        signatures=VapidSignatures(settings.external_url),
        limits=MemoryLimits(),
        clock=stores.clock,
        per_minute=settings.device_messages_per_minute,
    )
    registry = services.endpoint_registry
    return WebPushEndpoint(registry, intake), MatrixGateway(registry, intake)


def _list_demo_routes(
    settings: Settings, stores: Stores, services: Services
) -> tuple[FastRoute, ...]:
    """Return the page `/demo`: for one machine, not for several nodes."""
    if sqlite_path(settings.database_url) is None:
        return ()
    page = DemoPage(
        apps=stores.apps,
        users=stores.users,
        sign=UserTokenSigner(stores.user_keys, stores.vault, stores.clock).sign,
        send=partial(send_event, services.pipeline.intake),
        clock=stores.clock,
    )
    return page.routes


def build_front(
    settings: Settings, stores: Stores, services: Services, health: Health, limits: Limits
) -> Front:
    web_push, matrix = _build_web_push(settings, stores, services)
    fast_routes = (
        *health.routes,
        *matrix.routes,
        *EventEndpoint(services.pipeline.intake, services.idempotency).routes,
        *UserBatchEndpoint(
            stores.users,
            stores.idempotency_keys,
            services.idempotency,
            stores.clock,
            services.eraser,
            services.on_user_changed,
        ).routes,
        *Streams(stores.inboxes, services.live_clients, stores.clock).routes,
        *docs.routes(),
        *static_files.component_routes(),
        *_list_demo_routes(settings, stores, services),
    )
    more = {
        "limits": limits,
        "on_user_changed": services.on_user_changed,
        "check_present": services.active_users.check_present,
    }
    framework = build(ROUTES, {**vars(stores), **vars(services), **more}, fast_routes)
    apns = _build_apns(settings, stores, services, health)
    callbacks = TwilioCallbacks(
        providers=stores.providers,
        reports=stores.delivery_reports,
        clock=stores.clock,
        public_url=settings.external_url,
    )
    unsubscribe = UnsubscribeEndpoint(
        links=services.unsubscribe_links,
        users=stores.users,
        catalog=stores.catalog,
        limits=limits,
        clock=stores.clock,
        on_user_changed=services.on_user_changed,
    )
    return Front(
        routes=(*fast_routes, *openapi.OpenApiDocument(framework, fast_routes).routes),
        prefixes={
            **apns.prefixes,
            **web_push.prefixes,
            **callbacks.prefixes,
            **unsubscribe.prefixes,
        },
        framework=AuditedFramework(framework, stores.audit_log, ACTIONS, limits, stores.clock),
        authenticators=Authenticators(services.callers, services.administration),
        origins=services.origins,
        limits=limits,
        clock=stores.clock,
        metrics=services.metrics,
        settings=settings,
    )


class Server:
    """A node: serves until it is stopped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._exit_code = EXIT_OK

    async def run(self) -> int:
        """Serve until SIGTERM, SIGINT or a broken store; return the exit code."""
        settings, supervisor = self._settings, Supervisor()
        async with contextlib.AsyncExitStack() as stack:
            tls = _claim_directory_and_addresses(settings, stack)
            _raise_descriptor_limit()
            stores = await stack.enter_async_context(open_stores(settings, self._fail))
            redis = await _open_redis(settings, stack)
            services = Services(settings, stores, supervisor)
            stack.push_async_callback(services.close)
            health = Health(
                server_id=settings.server_id,
                database=stores.engine,
                others={"redis": redis},
                clock=stores.clock,
                metrics=services.metrics,
                find_failing_loops=supervisor.find_failing,
            )
            limits = RedisLimits(redis, MemoryLimits()) if redis else MemoryLimits()
            front = build_front(settings, stores, services, health, limits)
            services.metrics.watch_connections(front.connections)
            if sqlite_path(settings.database_url):
                await services.pipeline.take_over()
            listeners = await self._listen(front, services, tls)
            _start_loops(supervisor, services, stores, settings)
            if redis:
                redis.on_change = services.metrics.dependency_health.labels("redis").set
                redis.on_change(int(not redis.is_open))
                supervisor.start("redis_probe", redis.run)
            supervisor.start("http_connections", front.connections.run)
            stack.push_async_callback(supervisor.stop, 0)
            self._handle_signals()
            _tune_interpreter()
            get_logger().info("ready", server_id=settings.server_id)
            await self._stop.wait()
            health.is_stopping = True
            await self._shut_down(listeners, services, supervisor)
        get_logger().info("stopped", exit_code=self._exit_code)
        return self._exit_code

    async def _listen(
        self, front: Front, services: Services, tls: tuple[Path, Path]
    ) -> list[HttpListener]:
        settings, (certificate, key) = self._settings, tls
        await services.deleted_apps.poll()
        headers, connections = settings.max_header_bytes, front.connections.limit
        sockets, count_streams = services.sockets, services.live_clients.__len__
        if "gateway" in settings.roles and settings.gateway_listen:
            await sockets.listen(settings.gateway_listen)
        if "gateway" in settings.roles and settings.gateway_tls_listen:
            await sockets.listen(settings.gateway_tls_listen, load_context(certificate, key))
        # The plain one last: when `/ready` answers there, everything is open.
        listeners = [
            HttpListener(
                front,
                settings.listen,
                max_header_bytes=headers,
                connections=connections,
                count_streams=count_streams,
            )
        ]
        if settings.tls_listen:
            over_tls = HttpListener(
                front,
                settings.tls_listen,
                max_header_bytes=headers,
                connections=connections,
                count_streams=count_streams,
                certificate=certificate,
                key=key,
            )
            listeners.insert(0, over_tls)
        for listener in listeners:
            await listener.start(self._fail)
        return listeners

    async def _shut_down(
        self, listeners: list[HttpListener], services: Services, supervisor: Supervisor
    ) -> None:
        """Accept nothing more and finish what is under way, within the grace period."""
        grace_s = self._settings.grace_s
        get_logger().info("stopping", grace_s=grace_s)
        clock = asyncio.get_running_loop().time
        ends_at = clock() + grace_s
        # An HTTP listener would wait for an open stream for ever.
        await services.live_clients.stop(min(grace_s / 2, _STREAMS_GRACE_S))
        left_s = max(0.0, ends_at - clock())
        await asyncio.gather(
            services.sockets.stop(left_s), *(listener.stop(left_s) for listener in listeners)
        )
        services.pipeline.stop()
        await supervisor.stop(grace_s)
        await services.audit_loop.stop()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    def _fail(self, message: str) -> None:
        """Stop with an error: what cannot be stored must not be accepted."""
        get_logger().error("broken", message=message)
        self._exit_code = EXIT_BROKEN
        self._stop.set()


def _start_loops(
    supervisor: Supervisor, services: Services, stores: Stores, settings: Settings
) -> None:
    supervisor.start("loop_watch", services.loop_watch.run)
    supervisor.start("socket_heartbeats", services.sockets.run)
    supervisor.start("inbox_poll", services.live_clients.run)
    supervisor.start("inactive_users", services.active_users.run)
    supervisor.start("deleted_apps", services.deleted_apps.run)
    if not sqlite_path(settings.database_url):
        supervisor.start("device_changes", DeviceChanges(services.registry).run)
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
    )
    for task in tasks:
        supervisor.start(task.name, task.run)


def _raise_descriptor_limit() -> None:
    limit = descriptors.raise_limit()
    if limit < descriptors.LOW:
        get_logger().warning("few_descriptors", limit=limit, advice=descriptors.ADVICE)


def _claim_directory_and_addresses(
    settings: Settings, stack: contextlib.AsyncExitStack
) -> tuple[Path, Path]:
    """Make sure that no other server has them; return certificate and key."""
    directory = DataDirectory(settings.data)
    directory.ensure()
    if sqlite_path(settings.database_url):
        stack.enter_context(directory.lock())
    check_free(settings.addresses)
    return _certificate(settings, directory)


def _certificate(settings: Settings, directory: DataDirectory) -> tuple[Path, Path]:
    if settings.tls_certificate and settings.tls_key:
        load_context(settings.tls_certificate, settings.tls_key)
        return settings.tls_certificate, settings.tls_key
    tls = DevelopmentTls(directory.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    return tls.certificate, tls.key


async def _open_redis(settings: Settings, stack: contextlib.AsyncExitStack) -> RedisBreaker | None:
    if not settings.redis:
        return None
    client = connect(settings.redis)
    stack.push_async_callback(client.aclose)
    breaker = RedisBreaker(client)
    with contextlib.suppress(RedisUnavailable):  # it is logged
        await breaker.check()
    return breaker


def _tune_interpreter() -> None:
    """Search for cycles less often, and not among the objects that stay; limit integers in JSON.

    Requests and connections leave almost no cycles; with the default thresholds a third of the
    processor time of a push went into the search. To read and write an integer takes a time that
    grows with the square of its digits: those in a body of 1 MiB, of 4,000 digits each, took 70 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.set_int_max_str_digits(_DIGITS)
