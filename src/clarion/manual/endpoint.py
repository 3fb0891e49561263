"""`/docs/…`: the documentation of this release, for everyone who may see the API page."""

from __future__ import annotations

import asyncio
from importlib import resources
from urllib.parse import parse_qs

from clarion.errors import FieldFault, InvalidFields, MethodNotAllowed, NotFound
from clarion.http.asgi import Request, Response

PREFIX = "/docs/"
# Everything comes from this server, and nothing is a script.
_POLICY = (
    b"default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    b"base-uri 'none'; frame-ancestors 'none'"
)
_HTML = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"no-referrer"),
)
_STYLE = ((b"content-type", b"text/css; charset=utf-8"), (b"cache-control", b"max-age=3600"))
_IMAGE = ((b"content-type", b"image/png"), (b"cache-control", b"max-age=3600"))
_IMAGES = "images/"


async def answer(request: Request) -> Response:
    """Return a page, an image, the style sheet, or the results of a search."""
    scope = request.scope
    if scope["method"] not in {"GET", "HEAD"}:
        raise MethodNotAllowed(("GET", "HEAD"))
    # The first page of each takes long enough to delay others.
    return await asyncio.to_thread(_answer, scope["path"], scope["query_string"])


def _answer(whole: str, query: bytes) -> Response:
    # Only who reads the documentation pays for what renders it.
    from clarion.manual import pages, rendering  # noqa: PLC0415

    path = whole.removeprefix(PREFIX).rstrip("/") or pages.START
    if path == "search":
        return Response(200, _search(query), _HTML)
    if path == "manual.css":
        style = resources.files("clarion.manual") / "templates" / path
        return Response(200, style.read_bytes(), _STYLE)
    if path.startswith(_IMAGES):
        image = pages.read_image(path.removeprefix(_IMAGES))
        if image is not None:
            return Response(200, image, _IMAGE)
    # Links within the repository have the ending.
    path = path.removesuffix(".md")
    if path not in pages.read_pages():
        raise NotFound("There is no such page. /docs/start is the first one.")
    return Response(200, rendering.render(path), _HTML)


def _search(query: bytes) -> bytes:
    from clarion.manual.rendering import render_frame  # noqa: PLC0415
    from clarion.manual.search import QUERY_LENGTH, search  # noqa: PLC0415

    asked = parse_qs(query.decode("latin-1")).get("q", [""])[0].strip()
    if len(asked) > QUERY_LENGTH:
        raise InvalidFields(FieldFault("q", f"must have at most {QUERY_LENGTH} characters"))
    return render_frame("Search", "search", "found.html", asked=asked, found=search(asked))
