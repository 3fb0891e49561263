"""A visit of a page: the caller, the request, and the operations that the page may call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from clarion.access.model import AdminCaller
from clarion.admin.operations import OperationAnswer, Operations, Query
from clarion.admin.paths import path_of
from clarion.admin.rendering import Renderer
from clarion.clock import Clock
from clarion.http.asgi import Headers, Request, Response
from clarion.http.visitors import read_cookie

_HTML = (b"content-type", b"text/html; charset=utf-8")
_SEE_OTHER = 303
APP_COOKIE = "__Host-clarion_app"
_YEAR_S = 365 * 24 * 3600
_OF_HTMX = b"hx-request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of a page, after it was authenticated and its permission checked."""

    request: Request
    parts: Mapping[str, str]  # of the path, by their names
    query: Mapping[str, str]
    form: Mapping[str, list[str]] = field(repr=False)  # what was sent in the body
    caller: AdminCaller | None
    csrf_token: str = field(repr=False)
    operations: Operations
    renderer: Renderer
    clock: Clock

    @property
    def app_id(self) -> str:
        return self.parts["app_id"]

    @property
    def path(self) -> str:
        path: str = self.request.scope["path"]
        return path

    @property
    def last_app(self) -> str | None:
        """The app that was open last in this browser."""
        return read_cookie(self.request.scope, APP_COOKIE)

    def field(self, name: str) -> str:
        """Return the last value of a field of the form; empty if it was not sent."""
        return self.form.get(name, [""])[-1]

    def fields(self, name: str) -> list[str]:
        """Return all values of a field, as of boxes that are checked."""
        return self.form.get(name, [])

    async def get(self, *parts: str, **query: str | int | None) -> dict[str, Any]:
        """Return the response of an operation of the API: `get("users", user_id)`.

        Raises `Refused` if the operation fails; if nothing catches it, an error page is shown.
        """
        return (await self.call("GET", *parts, query=query)).json

    async def get_page(self, *parts: str, **query: str | int | None) -> dict[str, Any]:
        """Return the page of a list that `?after=` names, as templates show it."""
        after = self.query.get("after")
        page = await self.get(*parts, after=after, **query)
        return {"items": page["items"], "next": page["next"], "after": after}

    async def post(
        self, *parts: str, body: Any = None, **query: str | int | None
    ) -> dict[str, Any]:
        return (await self.call("POST", *parts, query=query, body=body)).json

    async def call(
        self, method: str, *parts: str, query: Query | None = None, body: Any = None
    ) -> OperationAnswer:
        """Call an operation of the API on behalf of the visitor of this page."""
        return await self.operations.call(
            self.request,
            method,
            *parts,
            query=query,
            body=body,
            form_key=self.field("form_key"),
        )

    async def render(
        self, template: str, *, status: int = 200, cookies: Headers | None = None, **values: Any
    ) -> Response:
        """Return a page."""
        body = await self.renderer.render(template, self, values)
        return Response(status, body.encode(), (_HTML, *self._remember_app(), *(cookies or ())))

    def _remember_app(self) -> Headers:
        """Return the cookie that remembers the app for server pages and the next visit."""
        app_id = self.parts.get("app_id")
        is_read = self.request.scope["method"] == "GET"
        if not app_id or not is_read or app_id == self.last_app or self.caller is None:
            return []
        cookie = f"{APP_COOKIE}={app_id}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={_YEAR_S}"
        return [(b"set-cookie", cookie.encode())]

    def redirect(
        self, path: str, *, notice: str | None = None, cookies: Headers | None = None
    ) -> Response:
        """Send the browser to another page, which shows a notice of the table `NOTICES`."""
        if notice:
            path += ("&" if "?" in path else "?") + urlencode({"notice": notice})
        return redirect_to(self.request, path, cookies)

    def app_path(self, *parts: str) -> str:
        """Return the path of a page of the app of this page."""
        return path_of("apps", self.app_id, *parts)


def redirect_to(request: Request, path: str, cookies: Headers | None = None) -> Response:
    """Send a browser to another page; htmx, which would take that for a part of its own, too."""
    if _OF_HTMX in request.headers:
        return Response(200, b"", ((b"hx-redirect", path.encode()), *(cookies or ())))
    return Response(_SEE_OTHER, b"", ((b"location", path.encode()), *(cookies or ())))
