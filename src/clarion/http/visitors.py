"""Requests of administrators: where they come from, their cookies, and whether this site sent them.

A session is a cookie, which browsers send along with requests that other sites make them send. So a
request that changes something must come from this site, and have a token that only this site can
read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import urlsplit

from clarion.access.model import APP_HEADER, AdminCredential, Visitor
from clarion.errors import CrossSiteRequest
from clarion.http.asgi import Scope, header
from clarion.http.strangers import Peers, normalise

SESSION_COOKIE = "__Host-clarion_session"
DEVICE_COOKIE = "__Host-clarion_device"
CSRF_HEADER = "Clarion-CSRF-Token"
ADMIN_KEY_PREFIX = "cak_"
_APP_HEADER = APP_HEADER.lower().encode()
_CSRF_HEADER = CSRF_HEADER.lower().encode()
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_COOKIES_LENGTH = 16_384
_BEARER = "bearer "


def is_admin_key(authorization: str) -> bool:
    """Whether a value of the header `Authorization` is an admin API key."""
    return authorization.startswith(ADMIN_KEY_PREFIX, len(_BEARER))


def read_credential(
    scope: Scope, authorization: str | None, peers: Peers, *, csrf_token: str | None = None
) -> AdminCredential | None:
    """Return the admin API key, or else the session of an administrator, or None.

    `CrossSiteRequest` if another site may have sent a request with a session. A form sends the
    token of the session as a field.
    """
    if authorization is None:
        secret = read_cookie(scope, SESSION_COOKIE)
        if secret is None:
            return None
        check_csrf(scope, secret, csrf_token)
    elif authorization[: len(_BEARER)].lower() == _BEARER:
        secret = authorization[len(_BEARER) :]
    else:
        return None
    return AdminCredential(
        secret=secret,
        is_key=authorization is not None,
        app_id=header(scope, _APP_HEADER),
        visitor=read_visitor(scope, peers),
    )


def read_visitor(scope: Scope, peers: Peers) -> Visitor:
    """Return where a request comes from; what a trusted proxy says about it is believed.

    This does not apply to the TLS listener: a proxy in front of it forwards bytes, so the headers
    are the client's own, and its address is unknown.
    """
    peer = normalise(str(scope["client"][0]))
    is_secure = scope["scheme"] == "https" or peers.is_local(scope)
    if peers.is_proxy(peer):
        if scope["scheme"] == "https":
            peer = ""
        else:
            is_secure = header(scope, b"x-forwarded-proto") == "https"
            peer = _find_client(scope, peer, peers)
    return Visitor(
        address=peer,
        user_agent=header(scope, b"user-agent") or "",
        is_secure=is_secure,
        device=read_cookie(scope, DEVICE_COOKIE),
        session=read_cookie(scope, SESSION_COOKIE),
    )


def _find_client(scope: Scope, peer: str, peers: Peers) -> str:
    """Return the last address in `X-Forwarded-For` that is not a trusted proxy.

    The client at that address wrote the part before it, which may be wrong.
    """
    given = [
        value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"
    ]
    for text in reversed(",".join(given).split(",")):
        address = normalise(text.strip())
        if not address:
            return peer
        if not peers.is_proxy(address):
            return address
        peer = address
    return peer


def read_cookie(scope: Scope, name: str) -> str | None:
    """Return the value of a cookie, or None. HTTP/2 may send several headers of cookies."""
    given = [value for key, value in scope["headers"] if key == b"cookie"]
    text = b"; ".join(given).decode("latin-1")
    if name not in text or len(text) > _COOKIES_LENGTH:
        return None
    values = [
        value.strip()
        for key, _, value in (each.partition("=") for each in text.split(";"))
        if key.strip() == name
    ]
    # With two of them, one was planted.
    return values[0] if len(values) == 1 and values[0] else None


def csrf_token_of(secret: str) -> str:
    """Return the token of a session: made from its secret, which it does not reveal."""
    digest = hmac.digest(secret.encode("utf-8", "surrogateescape"), b"clarion csrf", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def check_csrf(scope: Scope, secret: str, csrf_token: str | None = None) -> None:
    """Raise `CrossSiteRequest` unless a request that changes something was sent by this site."""
    if scope["method"] in _SAFE:
        return
    check_same_site(scope)
    given = csrf_token or header(scope, _CSRF_HEADER) or ""
    if not hmac.compare_digest(given.encode(), csrf_token_of(secret).encode()):
        raise CrossSiteRequest(
            f"Send the header `{CSRF_HEADER}` with the `csrf_token` of the session."
        )


def check_same_site(scope: Scope) -> None:
    """Raise `CrossSiteRequest` if a browser says that another site made it send the request."""
    site = header(scope, b"sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise CrossSiteRequest("A page of another site sent this request.")
        return
    origin = header(scope, b"origin")
    if origin is not None and urlsplit(origin).netloc != (header(scope, b"host") or ""):
        raise CrossSiteRequest("The `Origin` of this request is another site.")
