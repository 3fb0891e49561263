"""Who connects: a process of this machine, a trusted proxy, or anybody.

No client can become local, or get another address, by sending something. With a proxy on this
machine every request comes from this machine: the proxy's headers can only show that a request is
not local. A request that a proxy may interpret differently from Clarion is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

from clarion.errors import MalformedRequest
from clarion.http.asgi import Scope
from clarion.settings import Settings

Networks = Sequence[IPv4Network | IPv6Network]

_FORWARDED = frozenset(
    {b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"via"}
    | {b"x-real-ip"}
)
_HTTP_2 = "2"
_DOTS = re.compile(r"/\.\.(?:[/;\\]|$)")


class Peers(NamedTuple):
    """What the settings say about the addresses of clients."""

    proxies: Networks = ()
    # The plain listener can be reached from this machine alone.
    are_on_this_machine: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Peers:
        host = settings.listen.host
        return cls(settings.trusted_proxies, host == "localhost" or is_loopback(host))

    def is_local(self, scope: Scope) -> bool:
        """Whether a request was sent on this machine to this machine, and not through a proxy.

        A proxy that adds no header is recognised by the requested host name.
        """
        peer = normalise(str(scope["client"][0]))
        if not self.are_on_this_machine or not is_loopback(peer) or not is_direct(scope):
            return False
        return all(_names_loopback(value) for name, value in scope["headers"] if name == b"host")

    def is_proxy(self, address: str) -> bool:
        """Whether an address is that of a trusted proxy."""
        if not self.proxies or not address:
            return False
        found = ipaddress.ip_address(address)
        return any(found in network for network in self.proxies)

    def ended_tls(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a trusted proxy received the request over TLS and forwarded it in plain text."""
        if headers.get(b"x-forwarded-proto") != b"https" or scope["scheme"] != "http":
            return False
        return self.is_proxy(normalise(str(scope["client"][0])))


def is_direct(scope: Scope) -> bool:
    """Whether a request shows no sign of a proxy.

    In front of the TLS listener there may be a TCP proxy, which cannot be detected. Other proxies
    are recognised by the headers they add, by that of the PROXY protocol, or by HTTP/1.0, which
    nginx uses if it adds none.
    """
    if scope["scheme"] != "http" or scope["http_version"] == "1" or scope.get("is_proxied"):
        return False
    return _FORWARDED.isdisjoint(name for name, _ in scope["headers"])


def leads_elsewhere(path: str) -> bool:
    """Whether others may read a path as another one: `/v1/../metrics` as `/metrics`.

    The id of a user may be `..` all the same: only strangers are refused for it.
    """
    return _DOTS.search(path) is not None


def normalise(text: str) -> str:
    """Return an address in its usual form; IPv4 within IPv6 as IPv4; empty if it is invalid."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


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
    if scope["http_version"] == "1.1" and not headers.get(b"host"):
        raise MalformedRequest("Send a `Host` header.")
    if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":
        raise MalformedRequest("`Transfer-Encoding` must be chunked, or not be sent.")


def _check_repeated(names: list[bytes]) -> None:
    if names.count(b"host") > 1:
        raise MalformedRequest("Send one `Host` header, not several.")
    if names.count(b"transfer-encoding") > 1:
        raise MalformedRequest("`Transfer-Encoding` must be chunked, or not be sent.")
