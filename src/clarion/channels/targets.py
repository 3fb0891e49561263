"""Which addresses on the network Clarion may be made to call: the guard against SSRF.

A URL that an app or a user sets must not lead to this machine or its private network. The name is
resolved once, every address is checked, and the connection goes to a checked address: a name server
that answers differently the second time has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from clarion.channels.networks import IpAddress, Network, is_refused
from clarion.errors import ClarionError

if TYPE_CHECKING:
    from pyreqwest.http import Url

# For which app something is sent by this task.
sending_app: ContextVar[str] = ContextVar("sending_app", default="")
# Returns the addresses of a name; `OSError` if there are none. Runs in a thread.
Resolver = Callable[[str], Iterable[str]]

URL_LIMIT = 2048
RESOLVE_TIMEOUT_S = 5.0
# A name that moves to another address is followed after this time.
ADDRESSES_VALID_S = 30.0
# Shorter than the first retry of a delivery.
_FAILURE_VALID_S = 2.0
_NAMES_LIMIT = 4096
# The system's resolver holds a thread until it has an answer, or gives up. The names of one domain,
# and those that one app asks for, may hold a part of them, so that slow name servers of one app do
# not delay the others, however many domains it has.
_THREADS = 96
_THREADS_PER_DOMAIN = 16
_THREADS_PER_APP = 24

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_AUTHORITY = re.compile(r"https?://([^/?#]+)", re.IGNORECASE)
# What RFC 3986 allows in a URL, apart from letters and digits.
_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_WEB_PORTS = frozenset({80, 443})
_FIRST_FREE_PORT = 1024
# Services behind higher ports that could take a request for commands: those that browsers refuse
# (the list of "bad ports" in the Fetch standard), Redis and memcached.
_REFUSED_PORTS = frozenset({
    1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6379, 6566, 6665, 6666, 6667, 6668,
    6669, 6679, 6697, 10080, 11211,
})  # fmt: skip

_LOOPBACK = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_PRIVATE = (
    "must not lead to a private or reserved address; the operator can allow networks with "
    "--allow-private-targets"
)


class TargetRefused(ClarionError):
    """The URL leads to an address that Clarion does not call."""

    code = "target_refused"


class Location(NamedTuple):
    """The parts of a URL that identify the server."""

    scheme: str
    host: str
    port: int


class HttpTarget(NamedTuple):
    """A checked target: the connection goes to `address`; the other values are for TLS and HTTP."""

    scheme: str
    host: str
    port: int
    address: str


class _Lookup(msgspec.Struct, frozen=True):
    found: asyncio.Future[tuple[str, ...]]
    started: float

    def is_current(self, now: float, valid_s: float) -> bool:
        if not self.found.done():
            return True
        failed = self.found.exception() is not None
        return now - self.started < (min(valid_s, _FAILURE_VALID_S) if failed else valid_s)


def resolve_by_system(host: str) -> tuple[str, ...]:
    """Return the addresses of a name as the system knows them, the best first."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))


class Targets:
    """Resolves URLs, and refuses those that lead to a private or special address.

    `allowed` are private networks that the operator allows. The addresses of a name are cached for
    `valid_s`.
    """

    def __init__(
        self,
        allowed: Collection[Network] = (),
        resolver: Resolver = resolve_by_system,
        *,
        valid_s: float = ADDRESSES_VALID_S,
    ) -> None:
        self.allowed = tuple(allowed)
        self._valid_s = valid_s
        self._resolver = resolver
        self._threads = ThreadPoolExecutor(_THREADS, "resolve")
        # The oldest is first.
        self._lookups: dict[str, _Lookup] = {}
        self._under_way: Counter[str] = Counter()
        # By app, while it has names resolved.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def check_url(self, url: str) -> str:
        """Return the URL; `ValueError` with the reason if it can never be called.

        For URLs that are stored: no name is resolved.
        """
        return check_url(url, self.allowed)

    async def resolve(self, url: str) -> tuple[HttpTarget, ...]:
        """Return the targets of a URL, one for each address, the best first.

        `TargetRefused` if Clarion must not call it: because of its form, or because one of its
        addresses is private. `OSError` or `TimeoutError` if its name cannot be resolved.
        """
        try:
            location = _split_untrusted(url)
        except ValueError as error:
            raise TargetRefused(f"The URL {error}.") from error
        literal = _read_literal(location.host)
        addresses = (literal,) if literal else await self._look_up(location.host)
        self.check(*addresses)
        return _make_targets(location, addresses)

    async def resolve_host(self, host: str) -> str:
        """Return the address of a host that is reached without a URL; as for `resolve`."""
        addresses = await self._look_up(host.lower())
        self.check(*addresses)
        return addresses[0].partition("%")[0]

    def check(self, *addresses: str) -> None:
        """Raise `TargetRefused` if an address is private or special, and not allowed."""
        if _has_refused(addresses, self.allowed):
            raise TargetRefused(f"The URL {_PRIVATE}.")

    async def _look_up(self, host: str) -> tuple[str, ...]:
        now = asyncio.get_running_loop().time()
        lookup = self._lookups.get(host)
        if lookup is None or not lookup.is_current(now, self._valid_s):
            lookup = _Lookup(self._start(host), now)
            self._remember(host, lookup)
        if lookup.found.done():
            return lookup.found.result()
        # Others may wait for the same answer.
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            return await asyncio.shield(lookup.found)

    def _start(self, host: str) -> asyncio.Future[tuple[str, ...]]:
        domain = ".".join(host.rsplit(".", 2)[-2:])
        if self._under_way[domain] >= _THREADS_PER_DOMAIN:
            raise OSError("too many names of its domain are being resolved")
        self._under_way[domain] += 1
        found = asyncio.ensure_future(self._resolve_in_turn(host, sending_app.get()))
        found.add_done_callback(partial(self._end, domain))
        return found

    async def _resolve_in_turn(self, host: str, app_id: str) -> tuple[str, ...]:
        turns = self._turns.setdefault(app_id, asyncio.Semaphore(_THREADS_PER_APP))
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):  # nobody waits for longer
            await turns.acquire()
        try:
            resolve = partial(_resolve, self._resolver, host)
            return await asyncio.get_running_loop().run_in_executor(self._threads, resolve)
        finally:
            turns.release()

    def _end(self, domain: str, found: asyncio.Future[tuple[str, ...]]) -> None:
        self._under_way[domain] -= 1
        if not self._under_way[domain]:
            del self._under_way[domain]
        if not found.cancelled():
            found.exception()  # nobody may be waiting for it any more

    def _remember(self, host: str, lookup: _Lookup) -> None:
        self._lookups.pop(host, None)
        self._lookups[host] = lookup
        if len(self._lookups) > _NAMES_LIMIT:
            del self._lookups[next(iter(self._lookups))]


def check_url(url: str, allowed: tuple[Network, ...] = ()) -> str:
    """Return the URL; `ValueError` with the reason if it can never be called.

    The name is not resolved here: at each use, its addresses are checked.
    """
    host = _split_untrusted(url).host
    literal = _read_literal(host)
    addresses: Iterable[IpAddress] = (_read_address(literal),) if literal else ()
    if host == "localhost" or host.endswith(".localhost"):
        addresses = _LOOPBACK
    if addresses and all(is_refused(each, allowed) for each in addresses):
        raise ValueError(_PRIVATE)
    return url


def split(url: str) -> Location:
    """Return scheme, host and port of a URL; `ValueError` with the reason if it is not valid.

    The parser is that of the HTTP client, so that no URL means one host here and another there.
    Hosts that it would change, such as `0x7f.1` or `①.example`, are not valid.
    """
    if len(url) > URL_LIMIT:
        raise ValueError(f"must have at most {URL_LIMIT} characters")
    if not _CHARACTERS.fullmatch(url):
        raise ValueError(
            "must have only letters, digits and -._~:/?#[]@!$&'()*+,;=% ; write other characters "
            "as %XX, and those of a name as xn--…"
        )
    authority = _AUTHORITY.match(url)
    if not authority:
        raise ValueError("must start with https:// or http:// and a host")
    if "@" in authority[1]:
        raise ValueError("must have no user name or password")
    return _read_origin(authority[0], authority[1])


# By what comes before the path: each device has a URL of its own, and a path may be a secret.
@lru_cache(_NAMES_LIMIT)
def _read_origin(origin: str, authority: str) -> Location:
    from pyreqwest.http import Url  # noqa: PLC0415 - only where something is sent

    try:
        parsed = Url(origin)
    except ValueError as error:
        raise ValueError("must have a valid host and port") from error
    return Location(parsed.scheme, _read_host(parsed, authority), parsed.port_or_known_default or 0)


def _read_host(parsed: Url, authority: str) -> str:
    host = parsed.host_str or ""
    given = re.sub(r":[0-9]*$", "", authority.lower())
    if given != host:
        raise ValueError(f"must have its host written as {host}")
    if not host.startswith("[") and not _NAME.fullmatch(host):
        raise ValueError("must have a host like hooks.example.com, or an IP address")
    return host


def _split_untrusted(url: str) -> Location:
    location = split(url)
    port = location.port
    if (port < _FIRST_FREE_PORT and port not in _WEB_PORTS) or port in _REFUSED_PORTS:
        raise ValueError(
            f"must have port 80, 443 or one from {_FIRST_FREE_PORT} that no other kind of service "
            f"uses; {port} is refused"
        )
    return location


@lru_cache(_NAMES_LIMIT)
def _read_address(text: str) -> IpAddress:
    return ipaddress.ip_address(text.partition("%")[0])


@lru_cache(_NAMES_LIMIT)
def _has_refused(addresses: tuple[str, ...], allowed: tuple[Network, ...]) -> bool:
    return any(is_refused(_read_address(each), allowed) for each in addresses)


@lru_cache(_NAMES_LIMIT)
def _make_targets(location: Location, addresses: tuple[str, ...]) -> tuple[HttpTarget, ...]:
    return tuple(HttpTarget(*location, each) for each in addresses)


@lru_cache(_NAMES_LIMIT)
def _read_literal(host: str) -> str | None:
    """Return the address that a host is, if it is one."""
    if host.startswith("["):
        return str(ipaddress.IPv6Address(host[1:-1]))
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        return None


def _resolve(resolver: Resolver, host: str) -> tuple[str, ...]:
    addresses = tuple(resolver(host))
    if not addresses:
        raise OSError("it has no address")
    return addresses
