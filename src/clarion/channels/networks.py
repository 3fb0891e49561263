"""Which IP addresses are private, reserved or special: no URL of an app may resolve to them."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_KEPT = 4096

# `ipaddress` of Python 3.11 takes several of these for global.
_REFUSED: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
            "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
            "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15",
            "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
            # Teredo and other special uses, documentation, 6to4, name servers for private zones.
            "2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
        ),
    )
)  # fmt: skip
# Everything else of IPv6 is private, special or not assigned.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Leads to the IPv4 address in its last four bytes, through a gateway.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
EVERY_NETWORK = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))


@lru_cache(_KEPT)
def is_refused(address: IpAddress, allowed: tuple[Network, ...]) -> bool:
    """Whether an address must not be called; those in `allowed` networks may be."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:  # the same as the IPv4 address
            return is_refused(address.ipv4_mapped, allowed)
        if any(address in network for network in allowed):
            return False
        if address in _NAT64:
            return _is_special(ipaddress.IPv4Address(address.packed[-4:]))
        return address not in _GLOBAL_UNICAST or _is_special(address)
    return not any(address in network for network in allowed) and _is_special(address)


def _is_special(address: IpAddress) -> bool:
    return not address.is_global or any(address in network for network in _REFUSED)
