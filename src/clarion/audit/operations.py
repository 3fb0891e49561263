"""One table: which operations of the API are recorded in the audit log, and why others are not.

An operation that can change something and is in neither table is recorded under its method and
path; `tests/unit/audit/test_operations.py` then fails until it has a line here.
"""

from __future__ import annotations

# The action by which an operation is recorded.
AUDITED = {
    "POST /v1/keys": "key.create",
    "POST /v1/keys/{key_id}/rotate": "key.rotate",
    "DELETE /v1/keys/{key_id}": "key.revoke",
    "DELETE /v1/users/{user_id}": "user.delete",
    "POST /v1/users/{user_id}/restore": "user.restore",
    "GET /v1/users/{user_id}/export": "user.export",
    "GET /v1/me/export": "user.export",
    "POST /v1/apps": "app.create",
    "PATCH /v1/apps/{app_id}": "app.update",
    "DELETE /v1/apps/{app_id}": "app.delete",
    "PATCH /v1/app": "app.update",
    "POST /v1/apps/{app_id}/user-keys": "user_key.create",
    "POST /v1/apps/{app_id}/user-keys/{kid}/rotate": "user_key.rotate",
    "DELETE /v1/apps/{app_id}/user-keys/{kid}": "user_key.revoke",
    "POST /v1/apps/{app_id}/provider-keys": "provider_key.create",
    "POST /v1/apps/{app_id}/provider-keys/{key_id}/rotate": "provider_key.rotate",
    "DELETE /v1/apps/{app_id}/provider-keys/{key_id}": "provider_key.revoke",
    "POST /v1/admin/session": "session.start",
    "POST /v1/admin/session/totp": "session.second_factor",
    "POST /v1/admin/session/confirm": "session.confirm",
    "DELETE /v1/admin/session": "session.end",
    "DELETE /v1/admin/sessions": "session.end_all",
    "DELETE /v1/admin/sessions/{session_id}": "session.end",
    "POST /v1/admin/setup": "administrator.set_up",
    "PUT /v1/admin/password": "password.change",
    "POST /v1/admin/totp": "second_factor.begin",
    "POST /v1/admin/totp/confirm": "second_factor.add",
    "DELETE /v1/admin/totp": "second_factor.remove",
    "POST /v1/admin/recovery-codes": "recovery_codes.replace",
    "POST /v1/admin/administrators": "administrator.create",
    "PATCH /v1/admin/administrators/{administrator_id}": "administrator.update",
    "DELETE /v1/admin/administrators/{administrator_id}": "administrator.delete",
    "POST /v1/admin/administrators/{administrator_id}/reset": "administrator.reset",
    "POST /v1/admin/keys": "admin_key.create",
    "DELETE /v1/admin/keys/{key_id}": "admin_key.revoke",
    "PUT /v1/users/{user_id}/preferences": "preferences.replace",
    "PATCH /v1/users/{user_id}/preferences": "preferences.update",
    "PUT /v1/segments/{name}": "segment.replace",
    "DELETE /v1/segments/{name}": "segment.delete",
    "PUT /v1/categories/{name}": "category.replace",
    "DELETE /v1/categories/{name}": "category.delete",
    "PUT /v1/types/{type_name}": "type.replace",
    "DELETE /v1/types/{type_name}": "type.delete",
    "PUT /v1/types/{type_name}/templates/{channel}": "template.replace",
    "PUT /v1/providers/{channel}/{name}": "provider.replace",
    "DELETE /v1/providers/{channel}/{name}": "provider.delete",
    "POST /v1/providers/{channel}/{name}/test": "provider.test",
}

# Why an operation is not recorded, although its method could change something.
_NOTHING_CHANGES = "It changes nothing."
_OWN = "Users change only their own data."
_TRAFFIC = "Normal traffic of an app: the store has what was sent, and its timeline."
_DIRECTORY = "Apps copy these users from their own database."
_DEMO = "Only for the demo app, from this machine."
NOT_AUDITED = {
    "POST /v1/types/{type_name}/templates/{channel}/preview": _NOTHING_CHANGES,
    "POST /v1/explain": _NOTHING_CHANGES,
    "POST /v1/segments/count": _NOTHING_CHANGES,
    "POST /v1/segments/{name}/count": _NOTHING_CHANGES,
    "PUT /v1/me/preferences": _OWN,
    "PATCH /v1/me/preferences": _OWN,
    "POST /v1/me/tickets": _OWN,
    "PUT /v1/me/topics/{topic}": _OWN,
    "DELETE /v1/me/topics/{topic}": _OWN,
    "PUT /v1/users/{user_id}": _DIRECTORY,
    "PATCH /v1/users/{user_id}": _DIRECTORY,
    "POST /v1/users/batch": _DIRECTORY,
    "PUT /v1/users/{user_id}/topics/{topic}": _DIRECTORY,
    "DELETE /v1/users/{user_id}/topics/{topic}": _DIRECTORY,
    "POST /v1/events": _TRAFFIC,
    "POST /v1/events/batch": _TRAFFIC,
    "POST /v1/events/{event_id}/replay": _TRAFFIC,
    "DELETE /v1/events/{event_id}": _TRAFFIC,
    **{
        f"POST /v1/{whose}/notifications/{action}": _TRAFFIC
        for whose in ("me", "users/{user_id}")
        for action in (
            "{notification_id}/read",
            "{notification_id}/unread",
            "{notification_id}/dismiss",
            "{notification_id}/click",
            "read-all",
        )
    },
    "POST /v1/devices": _TRAFFIC,
    "PATCH /v1/devices/{device_id}": _TRAFFIC,
    "DELETE /v1/devices/{device_id}": _TRAFFIC,
    "POST /v1/devices/{device_id}/secret": _TRAFFIC,
    "POST /v1/devices/{device_id}/invalidate": _TRAFFIC,
    "POST /v1/devices/{device_id}/endpoints": _TRAFFIC,
    "DELETE /v1/devices/{device_id}/endpoints/{endpoint_id}": _TRAFFIC,
    "PUT /v1/devices/{device_id}/topics/{topic}": _TRAFFIC,
    "DELETE /v1/devices/{device_id}/topics/{topic}": _TRAFFIC,
    "PUT /v1/topics/{topic}": _TRAFFIC,
    "POST /v1/topics/{topic}/messages": _TRAFFIC,
    "POST /v1/publish/{topic}": _TRAFFIC,
    "PUT /v1/publish/{topic}": _TRAFFIC,
    "POST /_matrix/push/v1/notify": _TRAFFIC,
    "POST /demo/token": _DEMO,
    "POST /demo/events": _DEMO,
}

ACTIONS: dict[str, str | None] = {**dict.fromkeys(NOT_AUDITED), **AUDITED}
