"""Signing in and out, set-up links, and the second factor."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import segno
from markupsafe import Markup

from clarion.access.model import SignInStage
from clarion.admin.operations import OperationAnswer, Refused
from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT, check_next
from clarion.admin.permissions import Open
from clarion.admin.visit import Visit
from clarion.http.asgi import Response

_CODE = f"{ROOT}/sign-in/code"
_ENROL = f"{ROOT}/second-factor"
_CHANGES = f"{ROOT}/changes"
_SERVER_FAULT = 500
# A code of a longer text has modules that are too small for a phone to read.
_CODE_LIMIT_BYTES = 213


async def show_sign_in(visit: Visit) -> Response:
    return await visit.render("sign_in.html", next=visit.query.get("next", ""))


async def sign_in(visit: Visit) -> Response:
    body = {"username": visit.field("username"), "password": visit.field("password")}
    try:
        answer = await visit.call("POST", "admin", "session", body=body)
    except Refused as refused:
        values = {"username": visit.field("username"), "next": visit.field("next")}
        return await _show_again(visit, "sign_in.html", refused, **values)
    return _go_on(visit, answer)


async def show_code(visit: Visit) -> Response:
    return await visit.render("sign_in_code.html", next=visit.query.get("next", ""))


async def give_code(visit: Visit) -> Response:
    code = visit.field("code").replace(" ", "")
    body = {"code": code, "trust_device": bool(visit.field("trust_device"))}
    try:
        answer = await visit.call("POST", "admin", "session", "totp", body=body)
    except Refused as refused:
        return await _show_again(visit, "sign_in_code.html", refused, next=visit.field("next"))
    return _go_on(visit, answer)


async def show_set_up(visit: Visit) -> Response:
    return await visit.render("set_up.html")


async def set_up(visit: Visit) -> Response:
    """Use a set-up link; its token was in the fragment, which browsers do not send."""
    token, username = visit.field("token").strip(), visit.field("username").strip()
    body: dict[str, Any] = {"token": token.rpartition("#")[2], "password": visit.field("password")}
    if username:
        body["username"] = username
    try:
        answer = await visit.call("POST", "admin", "setup", body=body)
    except Refused as refused:
        values = {"token": token, "username": username}
        return await _show_again(visit, "set_up.html", refused, **values)
    return _go_on(visit, answer)


async def show_second_factor(visit: Visit) -> Response:
    return await visit.render("second_factor.html", new=None)


async def begin_second_factor(visit: Visit) -> Response:
    """Show a new secret; it is used as soon as its first code was given."""
    new = await visit.post("admin", "totp")
    return await visit.render("second_factor.html", new=new, code=await _draw_code(new["uri"]))


async def confirm_second_factor(visit: Visit) -> Response:
    body = {"code": visit.field("code").replace(" ", "")}
    try:
        answer = await visit.call("POST", "admin", "totp", "confirm", body=body)
    except Refused as refused:
        new = {"secret": visit.field("secret"), "uri": visit.field("uri")}
        code = await _draw_code(new["uri"])
        return await _show_again(visit, "second_factor.html", refused, new=new, code=code)
    codes = answer.json["recovery_codes"]
    return await visit.render("recovery_codes.html", codes=codes, cookies=[*answer.cookies])


async def show_confirm(visit: Visit) -> Response:
    return await visit.render("confirm.html", next=visit.query.get("next", ""))


async def confirm(visit: Visit) -> Response:
    """Take the password again, for what needs it."""
    body = {"password": visit.field("password")}
    try:
        await visit.call("POST", "admin", "session", "confirm", body=body)
    except Refused as refused:
        return await _show_again(visit, "confirm.html", refused, next=visit.field("next"))
    return visit.redirect(check_next(visit.field("next")), notice="confirmed")


async def show_changes(visit: Visit) -> Response:
    """Show the changes to the account since the previous sign-in; redirect if there are none."""
    after = check_next(visit.query.get("next", ""))
    changes = (await visit.get("admin", "account-changes"))["items"]
    new = [each for each in changes if each["is_new"]]
    if not new:
        return visit.redirect(after)
    session = await visit.get("admin", "session")
    return await visit.render("changes.html", changes=new, session=session, next=after)


async def sign_out(visit: Visit) -> Response:
    answer = await visit.call("DELETE", "admin", "session")
    return visit.redirect(f"{ROOT}/sign-in", notice="signed-out", cookies=[*answer.cookies])


async def _draw_code(uri: str) -> Markup | None:
    """Return the QR code, drawn in a thread: it takes some milliseconds. None if it is too long."""
    if len(uri.encode()) > _CODE_LIMIT_BYTES:
        return None
    return await asyncio.to_thread(draw_code, uri)


def draw_code(text: str) -> Markup:
    """Return a QR code as SVG, without inline styles, which the page does not allow."""
    code = segno.make_qr(text, error="m", boost_error=False)
    return Markup(code.svg_inline(border=2, omitsize=True, svgclass=None, lineclass=None))  # noqa: S704 - lines, and nothing of the text


async def _show_again(visit: Visit, template: str, refused: Refused, **values: Any) -> Response:
    """Show a form again, with what is wrong."""
    if refused.problem.status >= _SERVER_FAULT:
        raise refused
    return await visit.render(
        template,
        status=refused.problem.status,
        problem=refused.problem,
        errors=refused.fields,
        **values,
    )


def _go_on(visit: Visit, answer: OperationAnswer) -> Response:
    """Redirect to the next step of the sign-in, or else to the page where it began."""
    stage, after = SignInStage(answer.json["stage"]), visit.field("next")
    paths = {SignInStage.NEEDS_TOTP: f"{_CODE}?next={quote(after)}" if after else _CODE}
    changes = f"{_CHANGES}?next={quote(check_next(after))}"
    paths |= {SignInStage.NEEDS_ENROLMENT: _ENROL, SignInStage.SIGNED_IN: changes}
    return visit.redirect(check_next(paths[stage]), cookies=[*answer.cookies])


PAGES = (
    AdminPage("GET", f"{ROOT}/sign-in", show_sign_in, Open.STRANGERS),
    AdminPage("POST", f"{ROOT}/sign-in", sign_in, Open.STRANGERS),
    AdminPage("GET", _CODE, show_code, Open.SIGNING_IN),
    AdminPage("POST", _CODE, give_code, Open.SIGNING_IN),
    AdminPage("GET", f"{ROOT}/setup", show_set_up, Open.STRANGERS),
    AdminPage("POST", f"{ROOT}/setup", set_up, Open.STRANGERS),
    AdminPage("GET", _ENROL, show_second_factor, Open.SIGNING_IN),
    AdminPage("POST", _ENROL, begin_second_factor, Open.SIGNING_IN),
    AdminPage("POST", f"{_ENROL}/confirm", confirm_second_factor, Open.SIGNING_IN),
    AdminPage("GET", f"{ROOT}/confirm", show_confirm),
    AdminPage("POST", f"{ROOT}/confirm", confirm),
    AdminPage("GET", _CHANGES, show_changes),
    AdminPage("POST", f"{ROOT}/sign-out", sign_out, Open.SIGNING_IN),
)
