"""Which requests come from this machine itself, and which are too ambiguous to be answered."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from clarion.errors import MalformedRequest
from clarion.http.asgi import Scope

# What proxies add. A proxy on this machine makes every request come from it.
_FORWARDED = frozenset(
    {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"via"}
    | {b"x-real-ip"}
)
_HTTP_2 = "2"


def is_local(scope: Scope) -> bool:
    """Whether a request was sent on this machine to this machine, and not through a proxy.

    A proxy is known by the headers it adds, by the name of the host that it was asked for, and by
    HTTP/1.0, which nginx speaks if it is configured to add nothing.
    """
    if scope["http_version"] == "1" or not is_loopback(str(scope["client"][0])):
        return False
    names = {name for name, _ in scope["headers"]}
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    return names.isdisjoint(_FORWARDED) and all(map(_names_loopback, hosts))


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _names_loopback(value: bytes) -> bool:
    host = value.decode("latin-1").lower()
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return host == "localhost" or is_loopback(host)


def check_head(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raise `MalformedRequest` if a proxy might understand the request in another way than we do.

    RFC 9112 requires one `Host`. A transfer coding other than `chunked` is not decoded here.
    HTTP/2 has neither question.
    """
    if scope["http_version"] == _HTTP_2:
        return
    raw = scope["headers"]
    if len(raw) != len(headers):
        _check_repeated([name for name, _ in raw])
    if scope["http_version"] == "1.1" and headers.get(b"host") == b"":
        raise MalformedRequest("Send a `Host` header.")
    if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
        raise MalformedRequest("`Transfer-Encoding` must be chunked, or not be sent.")


def _check_repeated(names: list[bytes]) -> None:
    if names.count(b"host") > 1:
        raise MalformedRequest("Send one `Host` header, not several.")
    if names.count(b"transfer-encoding") > 1:
        raise MalformedRequest("`Transfer-Encoding` must be chunked, or not be sent.")
