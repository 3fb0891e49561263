"""Closes connections to the listener with TLS that are silent, idle, stalled or too many.

Granian accepts and closes connections itself, and passes on only requests. It never closes a
connection that sends nothing, or that is idle after an HTTP/2 request. So this loop lists the
descriptors of the process, finds the sockets that were accepted on the listeners' ports, and shuts
down those beyond a limit; Granian then sees the end of the connection and frees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import stat
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from clarion.http.budgets import Receiving
from clarion.http.strangers import is_loopback
from clarion.settings import Settings
from clarion.system import descriptors
from clarion.telemetry.logs import get_logger

# From the connection to the head of its first request.
FIRST_REQUEST_S = 10.0
# From the end of a request to the next one. Providers keep a connection to APNs for hours.
IDLE_S = 75.0
PROVIDER_IDLE_S = 3600.0
# A pass each second; with more descriptors than this, proportionally less often.
PASS_S = 1.0
_DESCRIPTORS_A_PASS = 10_000
# Looked at in one go, about half a millisecond, before other work of the loop has its turn.
_SLICE = 200
# Above this part of the connections allowed, those that have never sent a request make room: they
# have a second, the oldest less, and a pass follows soon. Those that have sent nothing at all have
# a moment: a client that waited to be accepted has sent its request by then.
_CROWDED = 0.9
_CROWDED_FIRST_REQUEST_S = 1.0
_CROWDED_FIRST_BYTE_S = 0.05
_CROWDED_PASS_S = 0.02
# Fewer connections than this are looked at more often: they are full sooner.
_FEW_CONNECTIONS = 1_000
# Where `struct tcp_info` of Linux has the number of bytes received.
_BYTES_RECEIVED = struct.Struct("=128xQ")
# While the server stops: by then a client has read the notice, and one that reads nothing must not
# hold up the stop.
STOPPING_S = 2.0
# When so few descriptors are left, that is logged, and the reserve is released: the TLS listener
# does not look at the connections it has while it fails to accept more. The reserve is larger than
# the number that waits to be accepted.
_FEW = 32
_LOG_EVERY_S = 60.0
_LISTING = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112

# Host and port of a client, and our port, as the listener puts them into a request. A client may
# use one port for connections to both listeners.
Client = tuple[str, str, str]
# Device and inode: no two sockets have the same, also one after the other.
Identity = tuple[int, int]
# What a descriptor was at the last pass: None if it is not a connection to a listener.
_Known = tuple[Identity, "_Accepted | None"]


class Closed(StrEnum):
    """Why a connection was closed."""

    SILENT = "silent"
    IDLE = "idle"
    STALLED = "stalled"
    ADDRESS = "address"
    CROWDED = "crowded"


@dataclass(slots=True, eq=False)
class Requests:
    """The requests of a connection, as the front sees them."""

    running: int = 0
    idle_s: float = 0.0
    is_provider: bool = False
    is_stalled: bool = False
    skips_bodies: ClassVar[bool] = False
    begun_pass: int = 0  # the last request
    last_pass: int = 0

    @property
    def key(self) -> object:
        return self


@dataclass(slots=True, eq=False)
class _Accepted:
    """A socket that was accepted on one of the ports."""

    descriptor: int
    identity: Identity
    client: Client
    port: int  # of the listener
    age_s: float = 0.0
    is_closed: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class HttpConnections:
    """The connections to the HTTP listeners of this process."""

    ports: Collection[int]
    limit: int  # of each listener
    address_limit: int
    descriptor_limit: int
    receiving: Receiving
    first_request_s: float = FIRST_REQUEST_S
    idle_s: float = IDLE_S
    provider_idle_s: float = PROVIDER_IDLE_S
    is_exempt: Callable[[str], bool] = is_loopback
    # Descriptors that are known to be connections of other listeners, which can be very many.
    others: Sequence[Collection[int]] = ()
    closed: Counter[Closed] = field(default_factory=Counter)
    _requests: dict[Client, Requests] = field(default_factory=dict)
    _known: dict[int, _Known] = field(default_factory=dict)
    _is_stopping: bool = False
    _pass: int = 0
    _logged_at: float = -_LOG_EVERY_S
    # Two descriptors of our own: a connection can be closed also when no more can be opened.
    _nothing: int = field(default_factory=lambda: os.open(os.devnull, os.O_RDONLY))
    _spare: int = field(default_factory=lambda: os.open(os.devnull, os.O_RDONLY))
    _reserve: list[int] = field(default_factory=list)
    _crowded: set[int] = field(default_factory=set)  # ports

    def __len__(self) -> int:
        return sum(1 for _, accepted in self._known.values() if accepted)

    def begin(self, client: Client) -> Requests:
        """Count a request of a connection until `end`."""
        requests = self._requests.get(client)
        if requests is None:
            requests = self._requests[client] = Requests(last_pass=self._pass)
        requests.begun_pass = self._pass
        requests.running += 1
        return requests

    def end(self, requests: Requests) -> None:
        requests.running -= 1
        requests.idle_s = 0.0

    async def run(self) -> None:
        """Close connections beyond the limits, until cancelled."""
        checked_at = time.monotonic()
        while True:
            before = time.monotonic()
            is_urgent = self._crowded or self._is_stopping
            usual_s = PASS_S * min(1.0, self.limit / _FEW_CONNECTIONS)
            await asyncio.sleep(_CROWDED_PASS_S if is_urgent else max(_CROWDED_PASS_S, usual_s))
            now = time.monotonic()
            # A loop that was blocked has not answered requests either: its delay does not count.
            checked_at += max(0.0, now - before - 2 * PASS_S)
            self.receiving.expire()
            if now - checked_at >= self._count_descriptors() / _DESCRIPTORS_A_PASS:
                await self.check(now - checked_at)
                checked_at = now

    def stop(self) -> None:
        """From now on, close those that have no request running for two seconds.

        A listener waits for each client to confirm that it knows of the stop.
        """
        self._is_stopping = True
        for _, accepted in self._known.values():
            if accepted:
                accepted.age_s = 0.0
        for requests in self._requests.values():
            requests.idle_s = 0.0

    async def check(self, elapsed_s: float) -> None:
        """Look at every connection once, a time after the last look."""
        self._pass += 1
        accepted = [each async for each in self._list()]
        self._age(accepted, elapsed_s)
        at_port = Counter(each.port for each in accepted)
        full = int(self.limit * _CROWDED)
        self._crowded = {port for port, count in at_port.items() if count >= full}
        for each, reason in self._choose([each for each in accepted if not each.is_closed]):
            self._close(each, reason)
            await asyncio.sleep(0)
        self._forget()
        self._keep_descriptors()

    async def _list(self) -> AsyncIterator[_Accepted]:
        known: dict[int, _Known] = {}
        listed = _list_descriptors(self.descriptor_limit)
        while batch := list(islice(listed, _SLICE)):
            for descriptor in batch:
                if any(descriptor in each for each in self.others):
                    continue
                if found := self._look(descriptor):
                    known[descriptor] = found
                    if found[1]:
                        yield found[1]
            await asyncio.sleep(0)
        self._known = known

    def _look(self, descriptor: int) -> _Known | None:
        try:
            status = os.fstat(descriptor)
        except OSError:  # closed since it was listed
            return None
        identity = (status.st_dev, status.st_ino)
        known = self._known.get(descriptor)
        if known and known[0] == identity:
            return known
        ends = _find_ends(descriptor) if stat.S_ISSOCK(status.st_mode) else None
        if ends is None or ends[1] not in self.ports:
            return identity, None
        self._reset(ends[0])
        return identity, _Accepted(descriptor, identity, *ends)

    def _reset(self, client: Client) -> None:
        """Drop the state of an earlier connection from the same port."""
        if requests := self._requests.get(client):
            requests.idle_s = 0.0
            if not requests.running and requests.begun_pass < self._pass - 1:
                del self._requests[client]

    def _age(self, accepted: Iterable[_Accepted], elapsed_s: float) -> None:
        for each in accepted:
            each.age_s += elapsed_s
            if requests := self._requests.get(each.client):
                requests.last_pass = self._pass
                if not requests.running:
                    requests.idle_s += elapsed_s

    def _choose(self, accepted: list[_Accepted]) -> Iterator[tuple[_Accepted, Closed]]:
        kept: list[_Accepted] = []
        for each in accepted:
            if reason := self._judge(each):
                yield each, reason
            else:
                kept.append(each)
        chosen = {*self._find_excess(kept)}
        yield from ((each, Closed.ADDRESS) for each in chosen)
        for port in self.ports:
            at_port = [each for each in kept if each.port == port and each not in chosen]
            yield from ((each, Closed.CROWDED) for each in self._make_room(at_port))

    def _find_excess(self, kept: list[_Accepted]) -> Iterator[_Accepted]:
        """Yield the connections of each address beyond its limit."""
        by_network: defaultdict[str, list[_Accepted]] = defaultdict(list)
        for each in kept:
            by_network[network_of(each.client[0])].append(each)
        for connections in by_network.values():
            excess = len(connections) - self.address_limit
            if excess > 0 and not self.is_exempt(connections[0].client[0]):
                yield from sorted(connections, key=self._worth)[:excess]

    def _judge(self, accepted: _Accepted) -> Closed | None:
        requests = self._requests.get(accepted.client)
        if requests is None:
            is_silent = accepted.age_s > self._first_request_limit_s(accepted)
            return Closed.SILENT if is_silent else None
        if requests.is_stalled:
            return Closed.STALLED
        limit_s = self.provider_idle_s if requests.is_provider else self.idle_s
        if self._is_stopping:
            limit_s = min(limit_s, STOPPING_S)
        return Closed.IDLE if not requests.running and requests.idle_s > limit_s else None

    def _first_request_limit_s(self, accepted: _Accepted) -> float:
        if accepted.port in self._crowded:
            is_begun = _has_received(accepted.descriptor)
            return _CROWDED_FIRST_REQUEST_S if is_begun else _CROWDED_FIRST_BYTE_S
        return min(self.first_request_s, STOPPING_S) if self._is_stopping else self.first_request_s

    def _make_room(self, kept: list[_Accepted]) -> list[_Accepted]:
        """Return connections without requests that make room for others, if a listener is full."""
        excess = len(kept) - int(self.limit * _CROWDED)
        if excess <= 0:
            return []
        idle = [each for each in kept if not self._is_running(each)]
        return sorted(idle, key=self._worth)[:excess]

    def _is_running(self, accepted: _Accepted) -> bool:
        requests = self._requests.get(accepted.client)
        return requests is not None and requests.running > 0

    def _worth(self, accepted: _Accepted) -> tuple[int, float]:
        """Order connections by what closing them costs: silent ones first, running ones last."""
        requests = self._requests.get(accepted.client)
        if requests is None:
            return 0, -accepted.age_s
        return 3 if requests.running else 2 if requests.is_provider else 1, -requests.idle_s

    def _close(self, accepted: _Accepted, reason: Closed) -> None:
        accepted.is_closed = True
        self._requests.pop(accepted.client, None)
        if not self._shut_down(accepted):
            return
        self.closed[reason] += 1
        if reason in {Closed.ADDRESS, Closed.CROWDED}:
            self._warn(
                "connections_closed",
                reason=reason.value,
                address=accepted.client[0],
                open=len(self),
                setting="--address-connections" if reason is Closed.ADDRESS else "ulimit -n",
            )

    def _shut_down(self, accepted: _Accepted) -> bool:
        """End a connection.

        Granian may close its descriptor at any moment, and the number may then be another socket's.
        Our duplicate does not change: it is shut down only if it is the chosen socket.
        """
        try:
            os.dup2(accepted.descriptor, self._spare, inheritable=False)
        except OSError:  # closed meanwhile
            return False
        try:
            status = os.fstat(self._spare)
            if (status.st_dev, status.st_ino) != accepted.identity:
                return False
            return _end_connection(self._spare)
        finally:
            os.dup2(self._nothing, self._spare, inheritable=False)

    def _forget(self) -> None:
        """Drop the state of connections that have ended."""
        gone = [
            client
            for client, requests in self._requests.items()
            if not requests.running and requests.last_pass < self._pass - 1
        ]
        for client in gone:
            del self._requests[client]

    def _count_descriptors(self) -> int:
        return len(self._known) + sum(map(len, self.others))

    def _keep_descriptors(self) -> None:
        """Release the reserve when almost no descriptor is left, and take it again later."""
        free = self.descriptor_limit - self._count_descriptors()
        if free < _FEW:
            for each in self._reserve:
                os.close(each)
            self._reserve.clear()
            self._warn(
                "descriptors_exhausted", limit=self.descriptor_limit, advice=descriptors.ADVICE
            )
        elif not self._reserve and free > 2 * descriptors.HELD:
            with contextlib.suppress(OSError):
                self._reserve += [os.dup(self._nothing) for _ in range(descriptors.HELD)]

    def _warn(self, event: str, **about: object) -> None:
        """Log a warning, at most once a minute."""
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            get_logger().warning(event, **about)


def watch(settings: Settings) -> HttpConnections:
    """Return the connections of a server with these settings; its loop is `run`."""
    ports = {settings.tls_listen.port} if settings.tls_listen else set()
    limit = descriptors.get_limit()
    return HttpConnections(
        ports=ports,
        limit=descriptors.share(limit).http // (1 + len(ports)),
        address_limit=settings.address_connections,
        descriptor_limit=limit,
        receiving=Receiving(settings.max_body_bytes),
    )


def _list_descriptors(limit: int) -> Iterator[int]:
    """Yield the open descriptors of this process; all possible numbers if it has run out."""
    try:
        entries = os.scandir(_LISTING)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        yield from range(limit)
        return
    with entries:
        yield from (int(entry.name) for entry in entries)


def _find_ends(descriptor: int) -> tuple[Client, int] | None:
    """Return the client of a TCP connection, and our port."""
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        if borrowed.family not in {socket.AF_INET, socket.AF_INET6}:
            return None
        host, port, *_ = borrowed.getpeername()
        ours = borrowed.getsockname()[1]
        return (host.partition("%")[0], str(port), str(ours)), ours
    except OSError:  # it listens, or its client has gone
        return None
    finally:
        borrowed.detach()  # it is not ours to close


def _has_received(descriptor: int) -> bool:
    """Whether a client has sent anything; true if that cannot be known."""
    if sys.platform != "linux":
        return True
    size = _BYTES_RECEIVED.size
    try:
        borrowed = socket.socket(fileno=descriptor)
    except OSError:  # closed meanwhile
        return True
    try:
        found = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:  # another one by now
        return True
    finally:
        borrowed.detach()
    return len(found) < size or _BYTES_RECEIVED.unpack(found)[0] > 0


def _end_connection(descriptor: int) -> bool:
    borrowed = socket.socket(fileno=descriptor)
    try:
        borrowed.shutdown(socket.SHUT_RDWR)
    except OSError:  # its client has gone
        return False
    finally:
        borrowed.detach()
    return True


@lru_cache(maxsize=10_000)
def network_of(host: str) -> str:
    """Return what one client can have addresses of: an IPv4 address, or 64 bits of IPv6."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped:
        return host
    return str(ipaddress.ip_network((host, 64), strict=False))
