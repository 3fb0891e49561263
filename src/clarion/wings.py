"""The wings of the house, each put together from its ports: gateway, screens, pipeline, keeper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clarion.catalog.model import Channel
from clarion.channels.stub import StubProvider
from clarion.events.cases import Caps
from clarion.events.pipeline import Pipeline, PipelinePorts
from clarion.events.retention import Keeper
from clarion.inbox.sockets import PATH as USER_SOCKET_PATH
from clarion.nodes.memory import MemoryLimits
from clarion.push.apns.channels import BroadcastChannels
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import ProviderTokens
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.registry import Registry
from clarion.push.sockets import Sockets
from clarion.push.sweeper import Sweeper
from clarion.telemetry.metrics import GatewayMetrics

if TYPE_CHECKING:
    from clarion.house import House
    from clarion.inbox.screens import Screens
    from clarion.settings import Settings
    from clarion.telemetry.metrics import Metrics


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


def build_gateway(settings: Settings, house: House, metrics: Metrics, screens: Screens) -> Gateway:
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
    sockets = Sockets(
        registry=registry,
        dispatch=dispatch,
        connections=connections,
        clock=clock,
        window_s=settings.low_priority_window_s,
        others={USER_SOCKET_PATH: screens.sockets.accept},
    )
    metrics.watch_gateway(sockets=sockets, connections=connections, registry=registry)
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
    settings: Settings, house: House, metrics: Metrics, screens: Screens
) -> Pipeline:
    """Put the pipeline together from the open house."""
    ports = PipelinePorts(
        events=house.events,
        queue=house.queue,
        facts=house.facts,
        ledger=house.ledger,
        deliveries=house.deliveries,
        users=house.users,
        catalog=house.catalog,
        clock=house.clock,
        providers={Channel.STUB: StubProvider()},
    )
    pipeline = Pipeline(
        ports,
        on_inbox_changed=screens.live.notify,
        queue_age_limit_s=settings.queue_age_limit_s,
        has_workers="worker" in settings.roles,
        caps=Caps(settings.category_per_hour, settings.user_per_hour),
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
