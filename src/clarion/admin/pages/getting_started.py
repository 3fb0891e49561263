"""The first steps with an app, ticked off as they happen."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.page import app_page
from clarion.admin.permissions import may_open
from clarion.admin.visit import Visit
from clarion.clock import to_rfc3339
from clarion.http.asgi import Response, header

_KEYS_SHOWN = 100
_TEST_USER = {"id": "test-user", "name": "Test user"}
_EVER = "1970-01-01T00:00:00Z"


async def show_steps(visit: Visit) -> Response:
    return await visit.render(
        "get_started.html",
        done=await _find_done(visit),
        origin=_origin_of(visit),
        user=_TEST_USER,
    )


async def create_test_user(visit: Visit) -> Response:
    """Create the test user, or restore its name."""
    await visit.call("PUT", "users", _TEST_USER["id"], body={"name": _TEST_USER["name"]})
    return visit.redirect(visit.app_path("get-started"), notice="user-created")


async def open_app(visit: Visit) -> Response:
    """Redirect to the overview, or to the first steps if the app has no users."""
    is_new = may_open(Scope.KEYS_READ, visit.caller, visit.app_id) and not await _has_any(
        visit, "users"
    )
    return visit.redirect(visit.app_path("get-started" if is_new else "overview"))


async def _find_done(visit: Visit) -> dict[str, bool]:
    keys = (await visit.get("keys", limit=_KEYS_SHOWN))["items"]
    now = to_rfc3339(visit.clock.now())
    live = await visit.get("live")
    return {
        "key": any(not each["revoked_at"] and (each["expires_at"] or now) >= now for each in keys),
        "user": await _has_any(visit, "users"),
        "bell": bool(live["clients_online"])
        or await _has_any(visit, "users", last_seen_after=_EVER),
        "event": await _has_any(visit, "notifications"),
    }


async def _has_any(visit: Visit, *parts: str, **query: Any) -> bool:
    return bool((await visit.get(*parts, limit=1, **query))["items"])


def _origin_of(visit: Visit) -> str:
    """Return where the browser found this page: where an application finds the API, too."""
    scope = visit.request.scope
    scheme = header(scope, b"x-forwarded-proto") or str(scope["scheme"])
    return f"{'https' if scheme == 'https' else 'http'}://{header(scope, b'host') or 'localhost'}"


PAGES = (
    app_page("GET", "", open_app, Scope.USERS_READ),
    app_page("GET", "/get-started", show_steps, Scope.KEYS_READ),
    app_page("POST", "/get-started", create_test_user, Scope.USERS_WRITE),
)
