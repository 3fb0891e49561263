"""The open connections, how long each may stay in its state, and which one makes room for another.

A connection that answers a request is in no state: it is never closed for another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Protocol

from clarion.http.connections import (
    FIRST_REQUEST_S,
    IDLE_S,
    PROVIDER_IDLE_S,
    Closed,
    network_of,
)
from clarion.http.strangers import is_loopback
from clarion.telemetry.limited_log import LimitedLog

# While all places are taken: how long a connection that has sent nothing keeps its place. A client
# that waited to be accepted has sent its request by then.
_CROWDED_SILENT_S = 0.05
_CROWDED_S = 1.0
_CROWDED_PAUSE_S = 0.02
# Connections of an address that are looked at to find the one that is closed.
_LOOK_AT = 100
_TICK_S = 0.5


class Waits(IntEnum):
    """What a connection waits for; the first is closed first."""

    CLOSING = 0  # its last response is written: for the client to close it
    SILENT = 1  # for its first bytes
    RECEIVING = 2  # for the rest of a head, or of a body that nobody reads
    IDLE = 3  # for the next request
    PROVIDER = 4  # for the next push


LIMITS_S = {
    Waits.CLOSING: 5.0,
    Waits.SILENT: FIRST_REQUEST_S,
    Waits.RECEIVING: FIRST_REQUEST_S,
    Waits.IDLE: IDLE_S,
    Waits.PROVIDER: PROVIDER_IDLE_S,
}
_REASONS = {Waits.IDLE: Closed.IDLE, Waits.PROVIDER: Closed.IDLE}


class Open(Protocol):
    """An open connection."""

    host: str
    waits: Waits | None
    descriptor: int

    def drop(self) -> None:
        """Close it at once, in any state."""

    def end(self) -> None:
        """Let no request follow the one that runs."""


@dataclass(slots=True, eq=False, kw_only=True)
class OpenConnections:
    """The connections of a listener."""

    limit: int
    address_limit: int
    log: LimitedLog
    time: Callable[[], float]
    is_exempt: Callable[[str], bool] = is_loopback
    closed: Counter[Closed] = field(default_factory=Counter)
    descriptors: set[int] = field(default_factory=set)
    # Each with the time since which it waits: in each state, the longest first.
    _waiting: dict[Waits, dict[Open, float]] = field(
        default_factory=lambda: {each: {} for each in Waits}
    )
    _by_network: dict[str, dict[Open, None]] = field(default_factory=dict)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def add(self, connection: Open) -> bool:
        """Add a connection; False if its address has too many, and all of them are in use."""
        of_network = self._by_network.setdefault(network_of(connection.host), {})
        if len(of_network) >= self.address_limit and not self.is_exempt(connection.host):
            spare = min(
                (each for each in islice(of_network, _LOOK_AT) if each.waits is not None),
                key=_rank,
                default=None,
            )
            self._warn(Closed.ADDRESS, connection.host, "--address-connections")
            if spare is None:
                return False
            self._drop(spare, Closed.ADDRESS)
        of_network[connection] = None
        self.descriptors.add(connection.descriptor)
        self._count += 1
        self.wait(connection, Waits.SILENT)
        return True

    def discard(self, connection: Open) -> None:
        """Remove a connection; it may have been removed before."""
        self.work(connection)
        network = network_of(connection.host)
        of_network = self._by_network.get(network, {})
        if connection in of_network:
            del of_network[connection]
            self.descriptors.discard(connection.descriptor)
            self._count -= 1
            if not of_network:
                del self._by_network[network]

    def wait(self, connection: Open, waits: Waits) -> None:
        """Note what a connection waits for from now on."""
        self.work(connection)
        connection.waits = waits
        self._waiting[waits][connection] = self.time()

    def work(self, connection: Open) -> None:
        """Note that a connection waits for nothing."""
        if connection.waits is not None:
            self._waiting[connection.waits].pop(connection, None)
            connection.waits = None

    def make_room(self) -> float:
        """Return 0 if there is room for one more, if needed after closing one; else the time to
        wait.
        """
        if self._count < self.limit:
            return 0.0
        spare = self._find_spare()
        self._warn(Closed.CROWDED, "", "ulimit -n")
        if spare is None:
            return _CROWDED_PAUSE_S
        self._drop(spare, Closed.CROWDED)
        return 0.0

    def _find_spare(self) -> Open | None:
        """Return the connection that makes room: the one that has waited longest, by state.

        If even those that have just connected are not old enough, nobody makes room yet.
        """
        now = self.time()
        for waits, waiting in self._waiting.items():
            for connection, since in islice(waiting.items(), 1):
                needed_s = {Waits.SILENT: _CROWDED_SILENT_S, Waits.RECEIVING: _CROWDED_S}.get(waits)
                if needed_s is None or now - since >= needed_s:
                    return connection
                return None
        return None

    def drop_spare(self) -> None:
        """Close the connection that can be spared most: its descriptor is needed."""
        for waiting in self._waiting.values():
            for connection in islice(waiting, 1):
                self._drop(connection, Closed.CROWDED)
                return

    async def run(self) -> None:
        """Close connections that wait too long, until cancelled."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.expire()

    def expire(self) -> None:
        """Close the connections that have waited too long."""
        now = self.time()
        for waits, waiting in self._waiting.items():
            for connection in [*_older(waiting, now - LIMITS_S[waits])]:
                self._drop(connection, _REASONS.get(waits, Closed.SILENT))

    def end(self) -> None:
        """Let no more requests begin, and close the connections without one."""
        for connection in self._list():
            connection.end()

    def drop_waiting(self) -> None:
        """Close the connections without a request."""
        for connection in self._list():
            if connection.waits is not None:
                connection.drop()

    def drop_all(self) -> None:
        for connection in self._list():
            connection.drop()

    def _list(self) -> list[Open]:
        return [each for of_network in self._by_network.values() for each in of_network]

    def _drop(self, connection: Open, reason: Closed) -> None:
        self.closed[reason] += 1
        self.discard(connection)
        connection.drop()

    def _warn(self, reason: Closed, address: str, setting: str) -> None:
        self.log.warning(
            "connections_closed",
            reason=reason.value,
            address=address,
            open=self._count,
            setting=setting,
        )


def _rank(connection: Open) -> int:
    return Waits.PROVIDER if connection.waits is None else connection.waits


def _older(waiting: dict[Open, float], moment: float) -> Iterator[Open]:
    for connection, since in waiting.items():
        if since >= moment:
            return
        yield connection
