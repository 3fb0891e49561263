"""Administrators: a list, invitations by a set-up link, roles; and the account of oneself."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Role
from clarion.admin.forms import fault, read_lines, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT, path_of
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_SHOWN = 50
_APPS_SHOWN = 100
_ROLES = [("", "none"), *((each.value, each.value) for each in Role)]
_NEW: dict[str, Any] = {"username": "", "role": None, "app_roles": {}, "networks": []}
_PATH = f"{ROOT}/administrators"
_ACCOUNT = f"{ROOT}/account"
_ALL = "all"


async def list_administrators(visit: Visit) -> Response:
    page = await visit.get_page("admin", "administrators", limit=_SHOWN)
    return await visit.render("administrators.html", **page)


async def show_new_administrator(visit: Visit) -> Response:
    return await visit.render("new_administrator.html", **await _form_values(visit, _NEW))


async def invite(visit: Visit) -> Response:
    """Create an account, and show the link with which a password is set."""
    given = {"username": visit.field("username").strip(), **_read_rights(visit)}
    try:
        made = await visit.post("admin", "administrators", body=given)
    except Refused as refused:
        values = await _form_values(visit, given)
        return await show_again(visit, "new_administrator.html", refused, **values)
    return await visit.render("set_up_link.html", link=made, username=made["username"])


async def show_administrator(visit: Visit) -> Response:
    account = await _find(visit)
    return await visit.render("administrator.html", **await _form_values(visit, account))


async def change_administrator(visit: Visit) -> Response:
    """Carry out the action of a button. All share one path, for the return from a confirmation."""
    account = await _find(visit)
    actions = {"save": _save, "reset": _reset, "enable": _enable, "delete": _delete}
    try:
        action = actions.get(visit.field("action"))
        if action is None:
            raise fault(visit, "action", f"must be one of {', '.join(actions)}")
        return await action(visit, account)
    except Refused as refused:
        values = await _form_values(visit, account)
        return await show_again(visit, "administrator.html", refused, **values)


async def _save(visit: Visit, account: dict[str, Any]) -> Response:
    await _patch(visit, account, _read_rights(visit))
    return visit.redirect(visit.path, notice="administrator-saved")


async def _enable(visit: Visit, account: dict[str, Any]) -> Response:
    await _patch(visit, account, {"is_active": not account["is_active"]})
    return visit.redirect(visit.path, notice="administrator-saved")


async def _reset(visit: Visit, account: dict[str, Any]) -> Response:
    body = {"totp": bool(visit.field("totp"))}
    link = await visit.post("admin", "administrators", account["id"], "reset", body=body)
    return await visit.render("set_up_link.html", link=link, username=account["username"])


async def _delete(visit: Visit, account: dict[str, Any]) -> Response:
    await visit.call("DELETE", "admin", "administrators", account["id"])
    return visit.redirect(_PATH, notice="administrator-deleted")


async def _patch(visit: Visit, account: dict[str, Any], changes: dict[str, Any]) -> None:
    await visit.call("PATCH", "admin", "administrators", account["id"], body=changes)


def _read_rights(visit: Visit) -> dict[str, Any]:
    """Return the roles and networks of the form; a row without an app or role gives none."""
    pairs = zip(visit.fields("app_id"), visit.fields("app_role"), strict=False)
    return {
        "role": visit.field("role") or None,
        "app_roles": {app_id: role for app_id, role in pairs if app_id and role},
        "networks": read_lines(visit, "networks"),
    }


async def _find(visit: Visit) -> dict[str, Any]:
    return await visit.get("admin", "administrators", visit.parts["administrator_id"])


async def _form_values(visit: Visit, account: dict[str, Any]) -> dict[str, Any]:
    apps = (await visit.get("apps", limit=_APPS_SHOWN))["items"]
    options = [("", "Choose an app"), *((each["id"], each["name"]) for each in apps)]
    named = {each["id"] for each in apps}
    options += [(app_id, app_id) for app_id in account["app_roles"] if app_id not in named]
    return {"account": account, "roles": _ROLES, "app_options": options}


async def show_account(visit: Visit) -> Response:
    """Show the sessions of the visitor, changes to the account, and a form."""
    return await visit.render("account.html", **await _account_values(visit))


async def change_password(visit: Visit) -> Response:
    body = {name: visit.field(name) for name in ("current_password", "password")}
    try:
        answer = await visit.call("PUT", "admin", "password", body=body)
    except Refused as refused:
        return await show_again(visit, "account.html", refused, **await _account_values(visit))
    return visit.redirect(_ACCOUNT, notice="password-changed", cookies=[*answer.cookies])


async def end_session(visit: Visit) -> Response:
    """End one session, or all of them, this one too."""
    session_id = visit.parts["session_id"]
    if session_id == _ALL:
        answer = await visit.call("DELETE", "admin", "sessions")
        sign_in = path_of("sign-in")
        return visit.redirect(sign_in, notice="signed-out", cookies=[*answer.cookies])
    await visit.call("DELETE", "admin", "sessions", session_id)
    return visit.redirect(_ACCOUNT, notice="session-ended")


async def _account_values(visit: Visit) -> dict[str, Any]:
    return {
        "sessions": (await visit.get("admin", "sessions"))["items"],
        "changes": (await visit.get("admin", "account-changes"))["items"],
        "session": await visit.get("admin", "session"),
    }


PAGES = (
    AdminPage("GET", _PATH, list_administrators, Role.ADMIN),
    AdminPage("GET", f"{ROOT}/new-administrator", show_new_administrator, Role.ADMIN),
    AdminPage("POST", f"{ROOT}/new-administrator", invite, Role.ADMIN),
    AdminPage("GET", f"{_PATH}/{{administrator_id}}", show_administrator, Role.ADMIN),
    AdminPage("POST", f"{_PATH}/{{administrator_id}}", change_administrator, Role.ADMIN),
    AdminPage("GET", _ACCOUNT, show_account),
    AdminPage("POST", _ACCOUNT, change_password),
    AdminPage("POST", f"{_ACCOUNT}/sessions/{{session_id}}/end", end_session),
)
