"""The management API and the dashboard: every handler, and the framework that calls them.

It takes as long to import and to build as the rest of a server, so a server is ready before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clarion.access.administrators.api import account_changes as account_changes_api
from clarion.access.administrators.api import administrators as administrators_api
from clarion.access.administrators.api import keys as admin_keys_api
from clarion.access.administrators.api import second_factors as second_factors_api
from clarion.access.administrators.api import sessions as admin_sessions_api
from clarion.access.api import app_keys as app_keys_api
from clarion.access.api import apps as apps_api
from clarion.access.api import keys as keys_api
from clarion.access.api import tickets as tickets_api
from clarion.admin.dashboard import Dashboard
from clarion.admin.operations import Operations
from clarion.admin.pages.table import PAGES
from clarion.analytics import api as analytics_api
from clarion.app.services import Services
from clarion.app.stores import Stores
from clarion.audit import api as audit_api
from clarion.audit.operations import ACTIONS
from clarion.catalog.api import categories as categories_api
from clarion.catalog.api import templates as templates_api
from clarion.catalog.api import types as types_api
from clarion.channels import api as providers_api
from clarion.events.api import events as events_api
from clarion.events.api import live as live_api
from clarion.events.api import notifications as notifications_api
from clarion.events.api import publish as publish_api
from clarion.events.api import virtual_time as virtual_time_api
from clarion.http import openapi
from clarion.http.asgi import FastRoute
from clarion.http.auditing import AuditedFramework
from clarion.http.front import Rest
from clarion.http.openapi import Tag
from clarion.http.router import build
from clarion.http.strangers import Peers
from clarion.inbox import api as inbox_api
from clarion.nodes.port import Limits
from clarion.people.api import follows as follows_api
from clarion.people.api import preferences as preferences_api
from clarion.people.api import segments as segments_api
from clarion.people.api import users as users_api
from clarion.people.erasure import api as erasure_api
from clarion.people.erasure.export_limits import ExportLimits
from clarion.push.api import devices as devices_api
from clarion.push.api import feedback as feedback_api
from clarion.push.api import history as history_api
from clarion.push.api import stats as stats_api
from clarion.push.api import topics as topics_api
from clarion.push.webpush import api as endpoints_api
from clarion.settings import Settings

# The handlers of the management API.
ROUTES = (
    *keys_api.ROUTES,
    *apps_api.ROUTES,
    *app_keys_api.ROUTES,
    *tickets_api.ROUTES,
    *admin_sessions_api.ROUTES,
    *second_factors_api.ROUTES,
    *account_changes_api.ROUTES,
    *admin_keys_api.ROUTES,
    *administrators_api.ROUTES,
    *users_api.ROUTES,
    *erasure_api.ROUTES,
    *preferences_api.ROUTES,
    *follows_api.ROUTES,
    *segments_api.ROUTES,
    *types_api.ROUTES,
    *categories_api.ROUTES,
    *templates_api.ROUTES,
    *events_api.ROUTES,
    *publish_api.ROUTES,
    *notifications_api.ROUTES,
    *inbox_api.ROUTES,
    *devices_api.ROUTES,
    *endpoints_api.ROUTES,
    *topics_api.ROUTES,
    *history_api.ROUTES,
    *feedback_api.ROUTES,
    *stats_api.ROUTES,
    *live_api.ROUTES,
    *analytics_api.ROUTES,
    *providers_api.ROUTES,
    *audit_api.ROUTES,
)

# In the order in which a newcomer needs them.
TAGS = (
    Tag("Events", "What happened in your application. Clarion decides who is notified of it."),
    Tag("Inbox", "The notifications of a user as a list: read, unread, dismissed, and live."),
    Tag("Notifications", "What became of an event for one user: deliveries and timeline."),
    Tag("Users", "The users that your application notifies, the topics they follow, their data."),
    Tag("Preferences", "What a user wants to receive, on which channels, and when not."),
    Tag("Devices", "Phones, browsers and programs that receive pushes, and their messages."),
    Tag("Topics", "Messages to all devices that subscribe to a topic."),
    Tag("Types", "The kinds of notifications: channels, priority, limits, digests."),
    Tag("Templates", "The texts of a type, for each channel and language."),
    Tag("Segments", "Groups of users by a filter, as the recipients of an event."),
    Tag("Providers", "The services that deliver email, SMS, pushes and webhooks."),
    Tag("Statistics", "How many devices, messages and subscribers an app has."),
    Tag("Keys", "The API keys of an app, and who a key belongs to."),
    Tag("Apps", "The apps of this installation, and the keys that sign tokens for them."),
    Tag("Administrators", "Accounts, sign-in, second factors and API keys of administrators."),
    Tag("Audit", "Who changed or read what, and when."),
)

_TESTS = Tag("Tests", "The clock of a test server, which tests move ahead.")


def build_management(
    settings: Settings,
    stores: Stores,
    services: Services,
    limits: Limits,
    fast_routes: Sequence[FastRoute],
) -> Rest:
    """Build the framework with its handlers, the OpenAPI document and the dashboard."""
    more = {
        "limits": limits,
        "export_limits": ExportLimits(limits, stores.clock),
        "on_user_changed": services.on_user_changed,
        "on_provider_changed": services.on_provider_changed,
        "check_present": services.active_users.check_present,
    }
    routes, tags = _list_routes(services)
    framework = build(routes, {**vars(stores), **vars(services), **more}, fast_routes)
    audited = AuditedFramework(
        framework, stores.audit_log, ACTIONS, limits, stores.clock, Peers.of(settings)
    )
    dashboard = Dashboard(
        pages=PAGES,
        operations=Operations(audited, fast_routes),
        authenticator=services.administration,
        check_visitor=services.sign_in_policy.check,
        limits=limits,
        clock=stores.clock,
        settings=settings,
    )
    document = openapi.OpenApiDocument(framework, fast_routes, tags)
    return Rest((*document.routes, *dashboard.routes), dashboard.prefixes, audited)


def _list_routes(services: Services) -> tuple[tuple[Any, ...], tuple[Tag, ...]]:
    """Return the handlers and their tags; a test server has more."""
    if services.virtual_time is None:
        return ROUTES, TAGS
    return (*ROUTES, *virtual_time_api.ROUTES), (*TAGS, _TESTS)
