"""Every HTTP endpoint but those of `management.py`: fast routes and prefixes."""

from __future__ import annotations

from functools import partial

from clarion.access.port import Authenticators
from clarion.access.signing import UserTokenSigner
from clarion.app.services import Services
from clarion.app.stores import Stores
from clarion.channels.twilio_callbacks import TwilioCallbacks
from clarion.demo.page import DemoPage, absent_page
from clarion.events.api.intake import EventEndpoint, send_event
from clarion.http import docs, static_files
from clarion.http.asgi import FastRoute
from clarion.http.front import Front, Rest
from clarion.http.health import Health
from clarion.http.strangers import Peers
from clarion.inbox.endpoint import InboxEndpoint
from clarion.inbox.streams import Streams
from clarion.manual import endpoint as manual
from clarion.nodes.memory import MemoryLimits
from clarion.nodes.port import Limits
from clarion.people.api.batch import UserBatchEndpoint
from clarion.people.api.unsubscribe import UnsubscribeEndpoint
from clarion.push.apns.channels import BroadcastChannels
from clarion.push.apns.endpoint import ApnsEndpoint
from clarion.push.apns.intake import PushIntake
from clarion.push.webpush.endpoint import WebPushEndpoint
from clarion.push.webpush.intake import WebPushIntake
from clarion.push.webpush.matrix import MatrixGateway
from clarion.push.webpush.signatures import VapidSignatures
from clarion.settings import Settings
from clarion.store.opening import sqlite_path


def _build_apns(
    settings: Settings, stores: Stores, services: Services, health: Health
) -> ApnsEndpoint:
    intake = PushIntake(
        registry=services.registry,
        dispatch=services.dispatch,
        limits=MemoryLimits(stores.clock),
        clock=stores.clock,
        device_per_minute=settings.device_messages_per_minute,
        app_per_minute=settings.app_messages_per_minute,
    )
    return ApnsEndpoint(
        tokens=services.provider_tokens,
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
        limits=MemoryLimits(stores.clock),
        clock=stores.clock,
        per_minute=settings.device_messages_per_minute,
    )
    registry = services.endpoint_registry
    matrix = MatrixGateway(
        registry,
        intake,
        limits=MemoryLimits(stores.clock),
        clock=stores.clock,
        peers=Peers.of(settings),
    )
    return WebPushEndpoint(registry, intake), matrix


def _list_demo_routes(
    settings: Settings, stores: Stores, services: Services
) -> tuple[FastRoute, ...]:
    """Return the page `/demo`: for one machine, not for several nodes."""
    if settings.demo != "on":
        return ()
    if sqlite_path(settings.database_url) is None:
        return (absent_page(Peers.of(settings)),)
    page = DemoPage(
        apps=stores.apps,
        users=stores.users,
        sign=UserTokenSigner(stores.user_keys, stores.vault, stores.clock).sign,
        send=partial(send_event, services.pipeline.intake),
        clock=stores.clock,
        peers=Peers.of(settings),
    )
    return page.routes


def build_front(
    settings: Settings, stores: Stores, services: Services, health: Health, limits: Limits
) -> Front:
    """Build the ASGI application. Its management API is built by `Front.complete`."""
    web_push, matrix = _build_web_push(settings, stores, services)
    fast_routes = (
        *health.routes,
        *matrix.routes,
        *_list_fast_routes(settings, stores, services),
    )

    def build_rest() -> Rest:
        from clarion.app.management import build_management  # noqa: PLC0415 - takes as long as all else

        return build_management(settings, stores, services, limits, fast_routes)

    return Front(
        routes=fast_routes,
        prefixes={
            **_build_apns(settings, stores, services, health).prefixes,
            **web_push.prefixes,
            **_build_callbacks(settings, stores).prefixes,
            **_build_unsubscribe(stores, services, limits).prefixes,
            manual.PREFIX: manual.answer,
        },
        build_rest=build_rest,
        authenticators=Authenticators(services.callers, services.administration),
        origins=services.origins,
        limits=limits,
        clock=stores.clock,
        metrics=services.metrics,
        settings=settings,
    )


def _list_fast_routes(
    settings: Settings, stores: Stores, services: Services
) -> tuple[FastRoute, ...]:
    return (
        *EventEndpoint(services.pipeline.intake, services.idempotency).routes,
        *UserBatchEndpoint(
            stores.users,
            stores.idempotency_keys,
            services.idempotency,
            stores.clock,
            services.eraser,
            services.on_user_changed,
        ).routes,
        *InboxEndpoint(
            stores.inbox_pages,
            stores.inboxes,
            stores.catalog,
            services.active_users.check_present,
        ).routes,
        *Streams(stores.inboxes, services.live_clients, stores.clock).routes,
        *docs.routes(),
        *static_files.component_routes(),
        *_list_demo_routes(settings, stores, services),
    )


def _build_callbacks(settings: Settings, stores: Stores) -> TwilioCallbacks:
    return TwilioCallbacks(
        providers=stores.providers,
        reports=stores.delivery_reports,
        clock=stores.clock,
        public_url=settings.external_url,
    )


def _build_unsubscribe(stores: Stores, services: Services, limits: Limits) -> UnsubscribeEndpoint:
    return UnsubscribeEndpoint(
        links=services.unsubscribe_links,
        users=stores.users,
        catalog=stores.catalog,
        limits=limits,
        clock=stores.clock,
        on_user_changed=services.on_user_changed,
    )
