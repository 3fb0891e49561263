"""Everything between the stores and the listeners, each service built once."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from clarion import descriptors
from clarion.access.administrators.authentication import AdminAuthentication
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
from clarion.audit.log_file import LogFile
from clarion.audit.loop import AuditLoop
from clarion.catalog.model import Channel
from clarion.channels.gateway import GatewayDevices
from clarion.channels.http_clients import HttpClients
from clarion.channels.kind_table import KINDS
from clarion.channels.port import SenderContext
from clarion.channels.routing import SEEN_MS, Routing
from clarion.channels.targets import Targets
from clarion.events.cases import FrequencyCaps
from clarion.events.pipeline import Pipeline
from clarion.events.port import PipelinePorts
from clarion.events.publisher import Publisher
from clarion.http.idempotency import Idempotency
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import EndReason, LiveClients
from clarion.inbox.sockets import UserEndpoint
from clarion.people.active_users import ActiveUsers
from clarion.people.erasure.eraser import Eraser
from clarion.people.erasure.gone_users import GoneUsers
from clarion.people.last_seen import LastSeen
from clarion.people.unsubscribe import UnsubscribeLinks
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.webpush.registry import EndpointRegistry
from clarion.settings import Settings
from clarion.sockets.listener import SocketListener
from clarion.stores import Stores
from clarion.supervisor import Supervisor
from clarion.telemetry.loop_lag import LoopWatch
from clarion.telemetry.metrics import (
    ChannelMetrics,
    CircuitMetrics,
    GatewayMetrics,
    Metrics,
    watch_devices,
)


class Services:
    """Everything between the stores and the listeners.

    Handlers get these attributes by name, beside those of `Stores`.
    """

    def __init__(self, settings: Settings, stores: Stores, supervisor: Supervisor) -> None:
        clock = stores.clock
        self._open_metrics()
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
        self.ended_keys = self._build_ended_keys(stores)
        self._build_registries(settings, stores)
        self.dispatch = self._build_dispatch(settings, stores)
        self.http_clients = HttpClients(Targets(settings.allow_private_targets))
        self.unsubscribe_links = UnsubscribeLinks(
            stores.directory.read_master_keys(), settings.external_url
        )
        self.channels = self._build_channels(settings, stores)
        self.pipeline = _build_pipeline(settings, stores, self)
        self.explainer = self.pipeline.explainer
        self.backlog = self.pipeline.backlog
        self.publisher = Publisher(self.pipeline.intake)
        self.eraser = self._build_eraser(settings, stores)
        self.wake = self.pipeline.wake
        self.sockets = self._build_sockets(settings, stores)
        self.audit_loop = _build_audit_loop(settings, stores)
        self.loop_watch = LoopWatch(self.metrics.loop_lag)
        self._watch(stores, supervisor)

    def _open_metrics(self) -> None:
        self.metrics = Metrics()
        self.gateway_metrics = GatewayMetrics(self.metrics.registry)
        self.circuits = CircuitMetrics(self.metrics.registry)

    def _build_registries(self, settings: Settings, stores: Stores) -> None:
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
        self.metrics.watch_rendering(stores.catalog.render_times)
        self.circuits.watch(self.channels.list_circuits)

    async def on_user_changed(self, app_id: str, user_id: str) -> None:
        """Apply a change of a user to what waits for them, and to their connections."""
        await self.active_users.check(app_id, user_id)
        await self.pipeline.replan(app_id, user_id)

    async def on_provider_changed(self, app_id: str, channel: Channel) -> None:
        """Try what waits on a channel again when every node has seen the change."""
        await self.pipeline.hasten(app_id, channel, SEEN_MS)

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
            metrics=self.gateway_metrics,
            stored_limit=settings.device_stored,
        )

    def _build_ended_keys(self, stores: Stores) -> EndedKeys:
        return EndedKeys(
            known_apps=stores.known_apps,
            clock=stores.clock,
            list_apps=self.live_clients.list_apps,
            disconnect=partial(self.live_clients.disconnect_app, reason=EndReason.KEY_ENDED),
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
            clock=stores.clock,
        )
        self.metrics.watch_sockets(devices.sockets)
        watch_devices(self.metrics.registry, self.registry, self.connections)
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
        broadcasts=stores.broadcasts,
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
