"""An app and its keys: API keys, keys for user tokens, keys of APNs providers.

A new secret is only in the response to the form, never in a URL or a log.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from clarion.access.model import Scope, UserTokenAlgorithm
from clarion.admin.forms import fault, read_lines, read_number, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.paths import ROOT, confirm_path
from clarion.admin.visit import Visit
from clarion.clock import to_rfc3339
from clarion.errors import ConfirmationRequired
from clarion.http.asgi import Response

_SHOWN = 50
_HOUR_S = 3_600
_OVERLAPS = [
    (str(_HOUR_S), "1 hour"),
    (str(24 * _HOUR_S), "1 day"),
    (str(7 * 24 * _HOUR_S), "7 days"),
    (str(30 * 24 * _HOUR_S), "30 days"),
    ("0", "not at all"),
]
_ALGORITHMS = [
    (UserTokenAlgorithm.HS256.value, "HS256: a shared secret, created here"),
    (UserTokenAlgorithm.ES256.value, "ES256: your public key (P-256)"),
    (UserTokenAlgorithm.EDDSA.value, "EdDSA: your public key (Ed25519)"),
]
# By the part of the path: the field with the secret, what it is called, and whether it is long.
_API = "keys"
_SECRETS = {
    _API: ("api_key", "API key", False),
    "user-keys": ("secret", "Secret", False),
    "provider-keys": ("private_key", "Private key (.p8)", True),
}


async def show_keys(visit: Visit) -> Response:
    return await visit.render("keys.html", **await _values_of(visit))


async def update_app(visit: Visit) -> Response:
    body: dict[str, Any] = {
        "name": visit.field("name"),
        "allowed_origins": read_lines(visit, "allowed_origins"),
    }
    try:
        body |= {name: read_number(visit, name) for name in ("user_per_hour", "category_per_hour")}
        await visit.call("PATCH", "apps", visit.app_id, body=body)
    except Refused as refused:
        return await _show_again(visit, refused)
    return visit.redirect(visit.app_path("keys"), notice="app-saved")


async def delete_app(visit: Visit) -> Response:
    """Delete the app, if its name was typed."""
    app = await visit.get("apps", visit.app_id)
    if visit.field("name") != app["name"]:
        return await _show_again(visit, fault(visit, "name", f"must be {app['name']}"))
    await visit.call("DELETE", "apps", visit.app_id)
    return visit.redirect(f"{ROOT}/apps", notice="app-deleted")


async def create_api_key(visit: Visit) -> Response:
    body: dict[str, Any] = {"label": visit.field("label"), "scopes": visit.fields("scopes")}
    if ends := visit.field("expires_at"):
        body["expires_at"] = f"{ends}T00:00:00Z"
    return await _create(visit, _API, body=body)


async def create_user_key(visit: Visit) -> Response:
    body: dict[str, Any] = {"algorithm": visit.field("algorithm")} | _read_public_key(visit)
    return await _create(visit, "user-keys", body=body)


async def create_provider_key(visit: Visit) -> Response:
    return await _create(visit, "provider-keys", body=_read_public_key(visit))


async def rotate_key(kind: str, visit: Visit) -> Response:
    body = _read_overlap(visit)
    if kind != _API:
        body |= _read_public_key(visit)
    return await _create(visit, kind, visit.parts["key_id"], "rotate", body=body)


async def revoke_key(kind: str, visit: Visit) -> Response:
    await visit.call("DELETE", *_parts_of(visit, kind), visit.parts["key_id"])
    return visit.redirect(visit.app_path("keys"), notice="key-revoked")


def _parts_of(visit: Visit, kind: str) -> tuple[str, ...]:
    """Return where the operations are on the keys of a kind."""
    return (kind,) if kind == _API else ("apps", visit.app_id, kind)


async def _create(visit: Visit, kind: str, *parts: str, body: dict[str, Any]) -> Response:
    """Make a key, and show its secret this once."""
    try:
        made = await visit.post(*_parts_of(visit, kind), *parts, body=body)
    except Refused as refused:
        if refused.problem.code == ConfirmationRequired.code:
            return visit.redirect(confirm_path(visit.app_path("keys")))
        return await _show_again(visit, refused)
    name, label, is_long = _SECRETS[kind]
    shown = {"label": label, "is_long": is_long, "secret": made[name], "key": made}
    return await visit.render("keys.html", **await _values_of(visit) | {"made": shown})


def _read_overlap(visit: Visit) -> dict[str, Any]:
    seconds = read_number(visit, "overlap_s")
    return {} if seconds is None else {"overlap_s": seconds}


def _read_public_key(visit: Visit) -> dict[str, Any]:
    text = visit.field("public_key").strip()
    return {"public_key": text} if text else {}


async def _values_of(visit: Visit) -> dict[str, Any]:
    after = visit.query.get("after")
    keys = await visit.get("keys", limit=_SHOWN, after=after)
    return {
        "app_now": await visit.get("apps", visit.app_id),
        "api_keys": [_describe(each, visit) for each in keys["items"]],
        "next": keys["next"],
        "after": after,
        "user_keys": await _list(visit, "user-keys"),
        "provider_keys": await _list(visit, "provider-keys"),
        "scopes": [(each.value, each.value) for each in Scope],
        "overlaps": _OVERLAPS,
        "algorithms": _ALGORITHMS,
        "made": None,
        "given": {"label": visit.field("label"), "scopes": visit.fields("scopes")},
    }


async def _list(visit: Visit, kind: str) -> list[dict[str, Any]]:
    found = (await visit.get("apps", visit.app_id, kind))["items"]
    return [_describe(each, visit) for each in found]


def _describe(key: dict[str, Any], visit: Visit) -> dict[str, Any]:
    """Add the state of a key: live, ending (it has a successor, or an end), ended."""
    ends = key["expires_at"]
    if key["revoked_at"]:
        state = "revoked"
    elif ends and ends <= to_rfc3339(visit.clock.now()):
        state = "expired"
    else:
        state = "ending" if key.get("replaced_by") else "live"
    return key | {"state": state, "is_live": state in {"live", "ending"}}


async def _show_again(visit: Visit, refused: Refused) -> Response:
    return await show_again(visit, "keys.html", refused, **await _values_of(visit))


PAGES = (
    app_page("GET", "/keys", show_keys, Scope.KEYS_READ),
    app_page("POST", "/keys", create_api_key, Scope.KEYS_WRITE),
    app_page("POST", "/user-keys", create_user_key, Scope.KEYS_WRITE),
    app_page("POST", "/provider-keys", create_provider_key, Scope.KEYS_WRITE),
    *(
        app_page("POST", f"/{kind}/{{key_id}}/{name}", partial(answer, kind), Scope.KEYS_WRITE)
        for kind in _SECRETS
        for name, answer in (("rotate", rotate_key), ("revoke", revoke_key))
    ),
    app_page("POST", "/settings", update_app, Scope.KEYS_WRITE),
    app_page("POST", "/delete", delete_app, Scope.KEYS_WRITE),
)
