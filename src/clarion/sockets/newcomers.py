"""The connections that have not authenticated: how many there may be, of one address and in all.

One more closes the oldest instead of being refused: a client that means well says hello at once,
and one that keeps others out says nothing.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

# Each may have a handshake of TLS under way and 28 KiB in its buffer: 200 MiB at most.
UNAUTHENTICATED_LIMIT = 2_000
# Addresses from which somebody has authenticated, remembered beyond their connections.
KNOWN_LIMIT = 10_000


class Newcomer(Protocol):
    """A connection that has not authenticated."""

    @property
    def address(self) -> str:
        """Where it comes from, as `group_address` writes it."""

    def drop(self) -> None:
        """Close it at once. It is removed when that is done, or here."""


class Newcomers:
    """The connections of this node that have not authenticated.

    If there are too many in all, those of addresses from which nobody has authenticated are closed
    first: a flood of strangers does not keep those out who are known.
    """

    def __init__(self, per_address: int, total: int = UNAUTHENTICATED_LIMIT) -> None:
        self._per_address = per_address
        self._total = total
        # In the order in which they came; a dictionary finds the oldest and any other at once.
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
        """Remove a connection that has authenticated, and know its address from now on."""
        self.discard(newcomer)
        self._known_addresses.pop(newcomer.address, None)
        if len(self._known_addresses) >= KNOWN_LIMIT:
            del self._known_addresses[next(iter(self._known_addresses))]
        self._known_addresses[newcomer.address] = None

    def discard(self, newcomer: Newcomer) -> None:
        """Remove a connection, if it is there."""
        self._strangers.pop(newcomer, None)
        self._known.pop(newcomer, None)
        of_address = self._by_address.get(newcomer.address)
        if of_address is not None:
            of_address.pop(newcomer, None)
            if not of_address:
                del self._by_address[newcomer.address]

    def drop_oldest(self) -> bool:
        """Close the oldest stranger, or else the oldest of those who are known."""
        oldest = next(iter(self._strangers), None) or next(iter(self._known), None)
        if oldest is not None:
            self._drop(oldest)
        return oldest is not None

    def drop_all(self) -> None:
        """Close all of them."""
        while self.drop_oldest():
            pass

    def _drop(self, newcomer: Newcomer) -> None:
        self.discard(newcomer)
        newcomer.drop()


def group_address(host: str) -> str:
    """Return what counts as one address: of IPv6 the first 64 bits, which one customer has."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"
