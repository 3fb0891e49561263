"""The links of the navigation, and the notices that pages show after something was done."""

from __future__ import annotations

from typing import NamedTuple

from clarion.access.model import Role, Scope


class MenuLink(NamedTuple):
    """A link: its words, its path below `/admin` or below the app, and who sees it."""

    label: str
    path: str
    icon: str  # of the templates' `icons.html`
    needs: Scope | Role | None = None


# Below `/admin/apps/{app_id}/`.
OF_APP = (
    MenuLink("Get started", "get-started", "flag", Scope.KEYS_READ),
    MenuLink("Overview", "overview", "activity", Scope.STATS_READ),
    MenuLink("Notifications", "notifications", "bell", Scope.NOTIFICATIONS_READ),
    MenuLink("Explain", "explain", "question", Scope.EVENTS_READ),
    MenuLink("People", "people", "users", Scope.USERS_READ),
    MenuLink("Dead letters", "dead-letters", "letter", Scope.EVENTS_READ),
    MenuLink("Segments", "segments", "filter", Scope.USERS_READ),
    MenuLink("Devices", "devices", "phone", Scope.DEVICES_READ),
    MenuLink("Topics", "topics", "megaphone", Scope.TOPICS_READ),
    MenuLink("Feedback", "feedback", "return", Scope.DEVICES_READ),
    MenuLink("Types and templates", "types", "template", Scope.TYPES_READ),
    MenuLink("Providers", "providers", "plug", Scope.PROVIDERS_READ),
    MenuLink("Audit log", "audit", "list", Scope.AUDIT_READ),
    MenuLink("App and keys", "keys", "key", Scope.KEYS_READ),
)
# Below `/admin/`.
OF_SERVER = (
    MenuLink("Apps", "apps", "box"),
    MenuLink("Audit log of the server", "audit-log", "list", Role.VIEWER),
    MenuLink("Administrators", "administrators", "shield", Role.ADMIN),
    MenuLink("Health", "health", "heart", Role.VIEWER),
    MenuLink("Your account", "account", "user"),
)

# By the word in `?notice=`, so that no other text can be shown.
NOTICES = {
    "signed-out": "You are signed out.",
    "saved": "Your changes are saved.",
    "event-sent": "The event is accepted.",
    "event-replay": "The event is being tried again.",
    "event-cancel": "The event is cancelled.",
    "user-created": "The user is created.",
    "replayed": "The events are being tried again.",
    "deleted": "The user is deleted, and can be restored for some days.",
    "erased": "Everything about the user is being erased.",
    "restored": "The user is restored.",
    "confirmed": "Your password was confirmed. You can continue for 10 minutes.",
    "type-saved": "The type is saved.",
    "type-deleted": "The type is deleted, or has its built-in values again.",
    "provider-saved": "The provider is saved, and used from the next message on.",
    "provider-deleted": "The provider is deleted.",
    "topic-saved": "The topic is saved.",
    "broadcast": "The message is sent to all subscribers.",
    "segment-saved": "The segment is saved.",
    "segment-deleted": "The segment is deleted.",
    "device-invalidated": "The device is invalidated.",
    "device-deleted": "The device is deleted.",
    "administrator-saved": "The administrator is changed.",
    "administrator-deleted": "The administrator is deleted.",
    "password-changed": "Your password is changed. All other sessions ended.",
    "session-ended": "The session is ended.",
    "app-saved": "The app is saved.",
    "app-deleted": "The app is deleted. Its data is removed in the background.",
    "key-revoked": "The key is revoked.",
    "template-saved": "The new version is saved, and used from now on.",
}
