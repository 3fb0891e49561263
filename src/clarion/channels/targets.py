"""Which addresses on the network Clarion may be made to call: the guard against SSRF.

A URL that an app or a user sets must not lead to this machine or its private network. The name is
resolved once, every address is checked, and the connection goes to the address that was checked:
a name server that answers differently the second time gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from clarion.errors import ClarionError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
RESOLVE_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}

# Beyond what `ipaddress` calls not global: on Python 3.11 it takes several of these for global.
_REFUSED: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
            "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            "::/96", "::1/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32",
            "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
        ),
    )
)  # fmt: skip
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class TargetRefused(ClarionError):
    """The URL leads to an address that Clarion does not call."""

    code = "target_refused"


class Target(NamedTuple):
    """Where a URL leads: the connection goes to `address`, with the name for TLS and the host."""

    scheme: str
    host: str
    port: int
    address: str


class Targets:
    """Resolves URLs, and refuses those that lead to a private or special address.

    `allowed` are networks of the operator's own that may be called all the same.
    """

    def __init__(self, allowed: Collection[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    async def resolve(self, url: str) -> Target:
        """Return where a URL leads; `TargetRefused` if Clarion must not call it.

        `OSError` if its name cannot be resolved.
        """
        scheme, host, port = split(url)
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        addresses = [str(each[4][0]).partition("%")[0] for each in found]
        for each in addresses:
            self.check(each)
        return Target(scheme, host, port, addresses[0])

    async def resolve_host(self, host: str, port: int) -> str:
        """Return the address of a host that is reached without a URL; as for `resolve`."""
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
        addresses = [str(each[4][0]).partition("%")[0] for each in found]
        for each in addresses:
            self.check(each)
        return addresses[0]

    def check(self, address: str) -> None:
        """Raise `TargetRefused` if an address is private or special, and not allowed."""
        given = ipaddress.ip_address(address)
        if any(given in network for network in self._allowed):
            return
        if any(_is_refused(each) for each in _unwrap(given)):
            raise TargetRefused(
                "The URL leads to a private or reserved address. The operator can allow networks "
                "with --allow-private-targets."
            )


def split(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL; `TargetRefused` if it is none to call."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise TargetRefused("The URL is not valid.") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise TargetRefused("The URL must start with https:// or http:// and have no password.")
    return parts.scheme, parts.hostname, port


def _unwrap(address: IpAddress) -> Iterator[IpAddress]:
    """Yield an address, and the IPv4 addresses to which it leads."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            yield address.ipv4_mapped
        if address.sixtofour:
            yield address.sixtofour
        if address.teredo:
            yield from address.teredo
        if address in _NAT64:
            yield ipaddress.IPv4Address(address.packed[-4:])


def _is_refused(address: IpAddress) -> bool:
    return not address.is_global or any(address in network for network in _REFUSED)
