"""The connections that have not authenticated: limits for each address and in total.

One more closes the oldest instead of being refused: a proper client sends its hello at once, an
attacker stays silent.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

# Each may have a handshake of TLS in progress and 28 KiB in its buffer: 200 MiB at most.
UNAUTHENTICATED_LIMIT = 2_000
# Addresses from which a client has authenticated, remembered after its connection.
KNOWN_LIMIT = 10_000


class Newcomer(Protocol):
    """A connection that has not authenticated."""

    @property
    def address(self) -> str:
        """The client's address, as `group_address` returns it."""

    def drop(self) -> None:
        """Close it at once, in any state."""


class Newcomers:
    """The connections of this node that have not authenticated.

    If there are too many in total, those of unknown addresses, from which no client has
    authenticated, are closed first: a flood of strangers does not keep known clients out.
    """

    def __init__(self, per_address: int, total: int = UNAUTHENTICATED_LIMIT) -> None:
        self._per_address = per_address
        self._total = total
        # In the order of arrival; a dictionary finds the oldest and any other at once.
        self._strangers: dict[Newcomer, None] = {}
        self._known: dict[Newcomer, None] = {}
        self._by_address: dict[str, dict[Newcomer, None]] = {}
        self._known_addresses: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def add(self, newcomer: Newcomer) -> bool:
        """Add a connection; return whether another one was closed for it."""
        of_address = self._by_address.get(newcomer.address, {})
        is_full = len(of_address) >= self._per_address
        if is_full:
            self._drop(next(iter(of_address)))
        elif len(self) >= self._total:
            is_full = self.drop_oldest()
        queue = self._known if newcomer.address in self._known_addresses else self._strangers
        queue[newcomer] = None
        self._by_address.setdefault(newcomer.address, {})[newcomer] = None
        return is_full

    def admit(self, newcomer: Newcomer) -> None:
        """Remove a connection that has authenticated, and remember its address."""
        self.discard(newcomer)
        self._known_addresses.pop(newcomer.address, None)
        if len(self._known_addresses) >= KNOWN_LIMIT:
            del self._known_addresses[next(iter(self._known_addresses))]
        self._known_addresses[newcomer.address] = None

    def discard(self, newcomer: Newcomer) -> None:
        """Remove a connection; it may have been removed before."""
        self._strangers.pop(newcomer, None)
        self._known.pop(newcomer, None)
        of_address = self._by_address.get(newcomer.address)
        if of_address is not None:
            of_address.pop(newcomer, None)
            if not of_address:
                del self._by_address[newcomer.address]

    def drop_oldest(self) -> bool:
        """Close the oldest connection, from an unknown address if possible; False without any."""
        oldest = next(iter(self._strangers), None) or next(iter(self._known), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def drop_all(self) -> None:
        while self.drop_oldest():
            pass

    def _drop(self, newcomer: Newcomer) -> None:
        self.discard(newcomer)
        newcomer.drop()


def group_address(host: str) -> str:
    """Return what counts as one address: of IPv6 the first 64 bits, those of one customer."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"
