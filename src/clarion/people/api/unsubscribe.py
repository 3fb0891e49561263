"""`/unsubscribe/{token}`: the pages that emails link to. GET shows, POST turns the type off.

A POST is also what mail programs send when their own button is pressed (RFC 8058).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from html import escape

from clarion.catalog.model import MANDATORY_CATEGORIES, NotificationType
from clarion.catalog.port import Catalog
from clarion.clock import Clock
from clarion.errors import TooManyRequests
from clarion.http.asgi import Endpoint, Request, Response
from clarion.http.dependencies import OnUserChanged
from clarion.nodes.port import Limits
from clarion.people import preferences as rules
from clarion.people.model import User
from clarion.people.sql import Users
from clarion.people.unsubscribe import PATH, OptOut, UnsubscribeLinks

# Requests with the links of one user: each is a read of the store.
PER_MINUTE = 60
# The form has one field; mail programs send it in two encodings.
BODY_LIMIT_BYTES = 4_096
_WINDOW_S = 60
_STYLE = "body{font:1.1rem/1.5 sans-serif;max-width:36rem;margin:4rem auto;padding:0 1rem}"
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-robots-tag", b"noindex"),
)
_BUTTON = (
    '<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click">'
    "<button>Unsubscribe</button></form>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsubscribeEndpoint:
    """Answers callers who are not signed in; the token determines what they may do."""

    links: UnsubscribeLinks
    users: Users
    catalog: Catalog
    limits: Limits
    clock: Clock
    on_user_changed: OnUserChanged

    @property
    def prefixes(self) -> dict[str, Endpoint]:
        return {PATH: self.answer}

    async def answer(self, request: Request) -> Response:
        """Show what would be turned off, or turn it off."""
        method = request.scope["method"]
        if method not in ("GET", "POST"):
            await request.discard()
            allow = (b"allow", b"GET, POST")
            return _page(405, "Method not allowed", "", allow)
        if method == "POST":
            # The body is not looked at: the link is the permission.
            await request.body(BODY_LIMIT_BYTES)
        opt_out = self.links.read(request.scope["path"].removeprefix(PATH))
        if opt_out is None:
            return _not_found()
        await self._count(opt_out)
        user = await self.users.get(opt_out.app_id, opt_out.user_id)
        entry = await self.catalog.find(opt_out.app_id, opt_out.type)
        if user is None or entry is None:
            return _not_found()
        if not _can_disable(entry.type):
            return _page(409 if method == "POST" else 200, "These emails are always sent", "")
        if method == "POST":
            await self._turn_off(opt_out, user)
        return _show(entry.type, opt_out, user, is_done=method == "POST")

    async def _count(self, opt_out: OptOut) -> None:
        allowance = await self.limits.take(
            f"unsubscribe:{opt_out.app_id}:{opt_out.user_id}",
            limit=PER_MINUTE,
            window_s=_WINDOW_S,
            now=self.clock.now(),
        )
        if allowance.is_exceeded:
            raise TooManyRequests(allowance.reset_s, "This link was used too often.")

    async def _turn_off(self, opt_out: OptOut, user: User) -> None:
        if _is_off(opt_out, user):
            return
        now = self.clock.now()
        off = {opt_out.type: {opt_out.channel: False}}

        def edit(found: User) -> User:
            preferences = rules.update(found.preferences, types=off)
            return replace(found, preferences=preferences, updated_at=now)

        await self.users.patch(user.app_id, user.id, edit)
        await self.on_user_changed(user.app_id, user.id)


def _can_disable(definition: NotificationType) -> bool:
    return definition.user_can_disable and definition.category not in MANDATORY_CATEGORIES


def _is_off(opt_out: OptOut, user: User) -> bool:
    toggles = user.preferences.types.get(opt_out.type, {})
    return not toggles.get(opt_out.channel, True)


def _show(definition: NotificationType, opt_out: OptOut, user: User, *, is_done: bool) -> Response:
    name = escape(definition.display_name)
    if is_done or _is_off(opt_out, user):
        return _page(200, "You are unsubscribed", f"<p>You get no more emails: {name}.</p>")
    text = f"<p>You will get no more emails of this kind: {name}.</p>"
    return _page(200, "Unsubscribe?", text + _BUTTON)


def _not_found() -> Response:
    text = "<p>Is it complete? Some programs break long links into two lines.</p>"
    return _page(404, "This link is not valid", text)


def _page(status: int, title: str, content: str, *more: tuple[bytes, bytes]) -> Response:
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{content}</body></html>"
    )
    return Response(status, page.encode(), (*_HEADERS, *more))
