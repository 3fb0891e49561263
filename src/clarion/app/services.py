"""Everything between the stores and the listeners, each service built once."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from clarion import __version__
from clarion.access.administrators.authentication import AdminAuthenticator
from clarion.access.administrators.invitations import Invitations
from clarion.access.administrators.passwords import HashingThreads
from clarion.access.administrators.policy import HOUR_MS, MINUTE_MS, SignInPolicy
from clarion.access.administrators.second_factor import CodeChecker, Enrolment
from clarion.access.administrators.sign_in import SignIn
from clarion.access.callers import Callers
from clarion.access.deleted_apps import DeletedApps
from clarion.access.ended_keys import EndedKeys
from clarion.access.origins import AllowedOrigins
from clarion.access.user_tokens import UserTokens
from clarion.app.stores import Stores
from clarion.audit.log_file import LogFile
from clarion.audit.loop import AuditLoop
from clarion.catalog.model import Channel
from clarion.channels.gateway import PushDevices
from clarion.channels.http_clients import HttpClients
from clarion.channels.kind_table import KINDS
from clarion.channels.metrics import ChannelMetrics
from clarion.channels.port import SenderContext
from clarion.channels.routing import SEEN_MS, Routing
from clarion.channels.targets import Targets
from clarion.clock import MovableClock, SteadyClock
from clarion.events.cases import FindCaps, FrequencyCaps
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.events.publisher import Publisher
from clarion.events.virtual_time import VirtualTime
from clarion.http.idempotency import Idempotency
from clarion.http.quotas import RequestQuotas
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import EndReason, LiveClients
from clarion.inbox.sockets import UserEndpoint
from clarion.nodes.bus import Bus
from clarion.nodes.membership import SharedMembership, SoleNode
from clarion.nodes.model import Node
from clarion.nodes.port import Limits, Membership
from clarion.people.active_users import ActiveUsers
from clarion.people.erasure.eraser import Eraser
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.last_seen import LastSeen
from clarion.people.unsubscribe import UnsubscribeLinks
from clarion.push.acknowledgements import GATHER_S
from clarion.push.apns.provider_tokens import ProviderTokens
from clarion.push.connections import Connections
from clarion.push.device_circuits import DeviceCircuits
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics, watch_devices
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.webpush.registry import EndpointRegistry
from clarion.settings import Settings
from clarion.sockets.listener import SocketListener
from clarion.store.postgres.clock import DatabaseClock
from clarion.system import descriptors
from clarion.system.supervisor import Supervisor
from clarion.telemetry.logs import get_logger
from clarion.telemetry.loop_lag import LoopWatch
from clarion.telemetry.metrics import CircuitMetrics, Metrics
from clarion.telemetry.traces import OFF, Tracer


class Services:
    """Everything between the stores and the listeners.

    Handlers get these attributes by name, as they get those of `Stores`.
    """

    def __init__(
        self,
        settings: Settings,
        stores: Stores,
        supervisor: Supervisor,
        bus: Bus,
        limits: Limits,
        tracer: Tracer = OFF,
    ) -> None:
        clock = stores.clock
        self.bus = bus
        self._limits = limits
        self.tracer = tracer
        self._open_metrics()
        self.idempotency = Idempotency(stores.vault, clock)
        self.live_clients = LiveClients(
            stores.inboxes, per_user=settings.user_streams, total=settings.node_streams, bus=bus
        )
        self.inbox_actions = InboxActions(stores.inboxes, self.live_clients, clock)
        self.connections = Connections()
        self.origins = AllowedOrigins(stores.known_apps, clock)
        self._known_apps, self._catalog = stores.known_apps, stores.catalog
        self.deleted_apps = DeletedApps(stores.apps, self._forget_app)
        self.active_users = ActiveUsers(
            stores.users,
            clock,
            self._disconnect_user,
            gone=GoneUsers(stores.deleted_users, stores.erasures),
            drop_cached=self._forget_users,
            bus=bus,
        )
        self.last_seen = LastSeen(stores.users, clock, lambda: self.live_clients.users)
        self.callers = self._build_callers(settings, stores)
        self._build_administrators(settings, stores)
        self.ended_keys = self._build_ended_keys(stores)
        self._build_registries(settings, stores)
        self.dispatch = self._build_dispatch(settings, stores)
        self.http_clients = HttpClients(Targets(settings.allow_private_targets))
        self.unsubscribe_links = UnsubscribeLinks(
            stores.directory.read_master_keys(), settings.external_url
        )
        self.channels = self._build_channels(settings, stores)
        self._build_work(settings, stores)
        self.sockets = self._build_sockets(settings, stores)
        self.audit_loop = _build_audit_loop(settings, stores)
        self.loop_watch = LoopWatch(self.metrics.loop_lag.observe)
        self._watch(stores, supervisor)

    def _open_metrics(self) -> None:
        self.metrics = Metrics()
        self.gateway_metrics = GatewayMetrics(self.metrics.registry)
        self.circuits = CircuitMetrics(self.metrics.registry)

    def _build_work(self, settings: Settings, stores: Stores) -> None:
        self.pipeline = _build_pipeline(settings, stores, self)
        self.virtual_time = _make_virtual_time(stores, self.pipeline)
        self.membership = _join_nodes(settings, stores, self.pipeline)
        self.explainer, self.backlog = self.pipeline.explainer, self.pipeline.backlog
        self.publisher = Publisher(self.pipeline.intake)
        self.eraser = self._build_eraser(settings, stores)
        self.wake = self.pipeline.wake

    def _build_registries(self, settings: Settings, stores: Stores) -> None:
        self.provider_tokens = ProviderTokens(stores.apps, self.deleted_apps)
        self.registry = Registry(
            stores.devices,
            self.connections,
            stores.clock,
            stores.vault,
            per_user=settings.user_devices,
            is_gone=self.active_users.is_gone,
        )
        self.endpoint_registry = EndpointRegistry(
            stores.push_endpoints,
            self.registry,
            stores.clock,
            settings.external_url,
            self.deleted_apps,
        )

    def _join_caches(self, stores: Stores) -> None:
        """Drop cached values here when another node changes them, and vice versa."""
        stores.keyring.on_provider_key_changed = self.provider_tokens.forget
        for cached in (
            self.callers.forget,
            stores.known_apps.forget,
            self.provider_tokens.forget,
            self.deleted_apps.deleted,
            stores.catalog.forget,
            stores.catalog.forget_app,
            self.channels.forget,
            self.registry.changed,
            self.endpoint_registry.forget,
        ):
            cached.join(self.bus)

    def _build_eraser(self, settings: Settings, stores: Stores) -> Eraser:
        return Eraser(
            deleted=stores.deleted_users,
            erasures=stores.erasures,
            clock=stores.clock,
            scrub=stores.engine.scrub,
            on_deleted=self.on_user_changed,
            on_erased=self.active_users.forget,
            kept_days=settings.deleted_user_days,
        )

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
            audit_log=stores.audit_log,
            clock=clock,
        )
        self.invitations = Invitations(admins.links, clock, settings.external_url)
        self.administration = AdminAuthenticator(
            admins, apps=stores.apps, policy=policy, clock=clock
        )

    def _watch(self, stores: Stores, supervisor: Supervisor) -> None:
        """Export what the services count, and subscribe to the changes of other nodes."""
        self._join_caches(stores)
        if isinstance(clock := stores.clock, DatabaseClock):
            self.metrics.watch_clock(lambda: clock.skew_ms)
        self.metrics.watch_writer(stores.engine.commit)
        self.metrics.watch_inbox(self.live_clients)
        self.metrics.watch_sandbox(stores.sandbox)
        self.metrics.watch_loops(supervisor.count_restarts)
        self.metrics.watch_stalls(lambda: self.loop_watch.stalls)
        self.metrics.registry.register(self.pipeline.metrics)
        self.metrics.watch_rendering(stores.catalog.render_times)
        self.circuits.watch(self.channels.list_circuits)

    async def on_user_changed(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user to their waiting notifications and their connections."""
        await self.active_users.check(app_id, user_id)
        await self.pipeline.replan(app_id, user_id)

    async def on_provider_changed(self, app_id: str, channel: Channel) -> None:
        """Retry the waiting messages of a channel when every node has seen the change."""
        await self.pipeline.hasten(app_id, channel, SEEN_MS)

    def _build_callers(self, settings: Settings, stores: Stores) -> Callers:
        return Callers(
            stores.keys,
            UserTokens(stores.known_apps, settings.user_token_hours),
            stores.clock,
            tickets=stores.tickets,
            is_active=self.active_users.is_active,
            on_seen=self.last_seen.note,
            foreign_keys=stores.foreign_keys,
        )

    def _build_dispatch(self, settings: Settings, stores: Stores) -> Dispatch:
        return Dispatch(
            messages=stores.messages,
            broadcasts=stores.broadcasts,
            connections=self.connections,
            clock=stores.clock,
            metrics=self.gateway_metrics,
            stored_limit=settings.device_stored,
            bus=self.bus,
            gather_s=GATHER_S,
            tracer=self.tracer,
            circuits=DeviceCircuits(settings.device_failures),
        )

    def _build_ended_keys(self, stores: Stores) -> EndedKeys:
        return EndedKeys(
            known_apps=stores.known_apps,
            clock=stores.clock,
            list_apps=self.live_clients.list_apps,
            disconnect=partial(self.live_clients.disconnect_app, reason=EndReason.KEY_ENDED),
        )

    async def _forget_app(self, app_id: str) -> None:
        """Drop the cached data of a deleted app, and end all its connections."""
        self.callers.forget_app(app_id)
        self._known_apps.drop(app_id)
        self._catalog.drop_app(app_id)
        await self.channels.drop_app(app_id)
        await self.connections.disconnect_app(app_id)
        await self.live_clients.disconnect_app(app_id)

    def _disconnect_user(self, app_id: str, user_id: str) -> None:
        """End the connections of a user who is inactive or gone; look them up again next time."""
        self.live_clients.disconnect_user(app_id, user_id)
        self.connections.disconnect_user(app_id, user_id)
        self.pipeline.intake.forget_user(app_id, user_id)

    def _forget_users(self, owners: Collection[tuple[str, str]]) -> None:
        """Drop this node's cached data of erased users."""
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
            is_gone=self.active_users.was_gone,
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
            quotas=RequestQuotas(self._limits, stores.clock, settings),
            clock=stores.clock,
        )
        self.metrics.watch_sockets(devices.sockets)
        circuits, clock = self.dispatch.circuits, stores.clock
        watch_devices(
            self.metrics.registry,
            self.registry,
            self.connections,
            lambda: circuits.count_open(clock.monotonic()),
        )
        return SocketListener(
            devices,
            users,
            per_address=settings.address_sockets,
            total=descriptors.share(descriptors.get_limit()).gateway,
        )


def _make_virtual_time(stores: Stores, pipeline: Pipeline) -> VirtualTime | None:
    """Return what moves the clock of a test server; None for any other."""
    if not isinstance(stores.clock, MovableClock):
        return None
    get_logger().warning("test_clock", meaning="POST /v1/test/clock moves the time of all apps")
    return VirtualTime(clock=stores.clock, pipeline=pipeline)


def _build_audit_loop(settings: Settings, stores: Stores) -> AuditLoop:
    path = settings.audit_log_path
    log = stores.audit_log
    loop = AuditLoop(log, LogFile(path) if path else None)
    log.on_written = loop.wake
    return loop


def _build_pipeline(settings: Settings, stores: Stores, services: Services) -> Pipeline:
    # Nobody sets the clock of a database that several nodes go by; its own clock smooths steps.
    clock = stores.clock if stores.node_id else SteadyClock(stores.clock)
    ports = PipelinePorts(
        events=stores.events,
        queue=stores.queue,
        notifications=stores.notifications,
        claims=stores.claims,
        outcomes=stores.outcomes,
        deliveries=stores.deliveries,
        users=stores.users,
        segments=stores.segments,
        devices=stores.devices,
        broadcasts=stores.broadcasts,
        catalog=stores.catalog,
        clock=clock,
        channels=services.channels,
        gateway=services.dispatch,
        registry=services.registry,
        push_devices=PushDevices(services.dispatch, stores.vault, stores.clock),
        node_id=stores.node_id,
        is_live=lambda: services.membership.is_live,
        tracer=services.tracer,
    )
    return Pipeline(
        ports,
        on_inbox_changed=services.live_clients.notify,
        queue_age_limit_s=settings.queue_age_limit_s,
        app_waiting=settings.app_waiting,
        has_workers="worker" in settings.roles,
        find_caps=_make_find_caps(settings, stores),
        refused_schemes=settings.refused_schemes,
        deleted_apps=services.deleted_apps,
    )


def _make_find_caps(settings: Settings, stores: Stores) -> FindCaps:
    """Return what finds the caps of an app: its own, or else those of the installation."""
    default = FrequencyCaps(settings.category_per_hour, settings.user_per_hour)

    async def find(app_id: str) -> FrequencyCaps:
        known = await stores.known_apps.find(app_id, stores.clock.now())
        if known is None:
            return default
        own = (known.app.category_per_hour, known.app.user_per_hour)
        pairs = zip(own, default, strict=True)
        return FrequencyCaps(*(before if cap is None else cap for cap, before in pairs))

    return find


def _join_nodes(settings: Settings, stores: Stores, pipeline: Pipeline) -> Membership:
    name, now = settings.server_id, stores.clock.now()
    node = Node(stores.node_id or name, name, __version__, started_at=now, seen_at=now)
    if not stores.node_id:
        return SoleNode(node, stores.clock)
    return SharedMembership(stores.nodes, stores.clock, node, pipeline.take_over)
