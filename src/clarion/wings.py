"""The wings of the house, each put together from its ports: gateway, inbox, pipeline, keeper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.catalog.model import Channel
from clarion.channels.stub import StubProvider
from clarion.events.cases import FrequencyCaps
from clarion.events.pipeline import Pipeline, PipelinePorts
from clarion.events.retention import Keeper
from clarion.inbox.actions import InboxActions
from clarion.inbox.live import LiveClients
from clarion.inbox.sockets import UserEndpoint
from clarion.nodes.memory import MemoryLimits
from clarion.push.apns.channels import BroadcastChannels
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import ProviderTokens
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint
from clarion.push.sweeper import Sweeper
from clarion.telemetry.metrics import GatewayMetrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clarion.access.model import Caller
    from clarion.house import House
    from clarion.settings import Settings
    from clarion.telemetry.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class LiveInbox:
    """The live side of the inbox: its clients, their actions, their sockets."""

    live: LiveClients
    actions: InboxActions
    endpoint: UserEndpoint


def build_live_inbox(
    settings: Settings, house: House, identify: Callable[[str], Awaitable[Caller]]
) -> LiveInbox:
    """Build the live side of the inbox."""
    inboxes, clock = house.inboxes, house.clock
    live = LiveClients(inboxes, per_user=settings.user_streams, total=settings.node_streams)
    actions = InboxActions(inboxes, live, clock)
    endpoint = UserEndpoint(
        inboxes=inboxes, actions=actions, live=live, identify=identify, clock=clock
    )
    return LiveInbox(live=live, actions=actions, endpoint=endpoint)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The push gateway, put together."""

    registry: Registry
    connections: Connections
    dispatch: Dispatch
    intake: PushIntake
    channels: BroadcastChannels
    sockets: Sockets
    sweeper: Sweeper


def build_gateway(settings: Settings, house: House, metrics: Metrics, inbox: LiveInbox) -> Gateway:
    """Put the gateway together from the open house; users' sockets share its listeners."""
    clock = house.clock
    registry = Registry(house.devices, clock, per_user=settings.user_devices)
    connections = Connections()
    dispatch = Dispatch(
        messages=house.messages,
        broadcasts=house.broadcasts,
        connections=connections,
        clock=clock,
        metrics=GatewayMetrics(metrics.registry),
        stored_limit=settings.device_stored,
    )
    endpoint = DeviceEndpoint(
        registry=registry,
        dispatch=dispatch,
        connections=connections,
        clock=clock,
        window_s=settings.low_priority_window_s,
    )
    metrics.watch_gateway(sockets=endpoint.sockets, connections=connections, registry=registry)
    return Gateway(
        registry=registry,
        connections=connections,
        dispatch=dispatch,
        intake=PushIntake(
            tokens=ProviderTokens(house.apps),
            registry=registry,
            dispatch=dispatch,
            limits=MemoryLimits(),
            clock=clock,
            device_per_minute=settings.device_messages_per_minute,
            app_per_minute=settings.app_messages_per_minute,
        ),
        channels=BroadcastChannels(topics=house.topics, dispatch=dispatch, clock=clock),
        sockets=sockets,
        sweeper=Sweeper(
            messages=house.messages,
            history=house.history,
            broadcasts=house.broadcasts,
            devices=house.devices,
            apps=house.apps,
            dispatch=dispatch,
            clock=clock,
            keep_days=settings.message_days,
        ),
    )


def build_pipeline(
    settings: Settings, house: House, metrics: Metrics, inbox: LiveInbox
) -> Pipeline:
    """Put the pipeline together from the open house."""
    ports = PipelinePorts(
        events=house.events,
        queue=house.queue,
        notifications=house.notifications,
        outcomes=house.outcomes,
        deliveries=house.deliveries,
        users=house.users,
        catalog=house.catalog,
        clock=house.clock,
        providers={Channel.STUB: StubProvider()},
    )
    pipeline = Pipeline(
        ports,
        on_inbox_changed=inbox.live.notify,
        queue_age_limit_s=settings.queue_age_limit_s,
        has_workers="worker" in settings.roles,
        caps=FrequencyCaps(settings.category_per_hour, settings.user_per_hour),
    )
    metrics.registry.register(pipeline.metrics)
    return pipeline


def build_keeper(settings: Settings, house: House) -> Keeper:
    """Put together what deletes what is old."""
    return Keeper(
        retention=house.retention,
        inboxes=house.inboxes,
        devices=house.devices,
        apps=house.apps,
        clock=house.clock,
        event_days=settings.event_days,
        notification_days=settings.notification_days,
        device_days=settings.device_days,
    )
