"""The servers of Redis or Valkey: a connection to each, and which one has a key."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis

from clarion.nodes.redis.address import RedisAddress, ServerAddress
from clarion.nodes.redis.link import Command, Push, RedisLink, RedisRefused, check, open_link
from clarion.nodes.redis.scripts import SCRIPTS

FAILURES = (OSError, TimeoutError, RedisRefused, hiredis.HiredisError)
# The first with sharded channels.
LEAST_VERSION = 7
_SLOTS = 16_384


@dataclass(frozen=True, slots=True)
class About:
    """What Redis is."""

    product: str  # redis or valkey
    version: str
    primaries: int  # of a Cluster; 0: it is not one


class RedisClient:
    """Connections to all servers that take writes: one, or the primaries of a Cluster.

    It connects only when `connect` is called. If one connection is lost, or a slot has moved, all
    have to be opened again: `on_lost` is called.
    """

    def __init__(self, address: RedisAddress, installation_id: str = "") -> None:
        self.address = address
        # All names begin with it. Installations may share a server, and channels know no databases.
        self.namespace = f"clarion:{installation_id}"
        self.about = About("", "", 0)
        self.on_push: Push = lambda _channel, _data: None
        self.on_lost: Callable[[BaseException], None] = lambda _error: None
        self._links: dict[ServerAddress, RedisLink] = {}
        # The last slot of each range, in order, and the connections of the same places.
        self._ends: list[int] = []
        self._owners: list[RedisLink] = []

    @property
    def links(self) -> Sequence[RedisLink]:
        return list(self._links.values())

    @property
    def is_connected(self) -> bool:
        return bool(self._owners)

    async def connect(self) -> None:
        """Connect to all servers again; raise the error if one of them fails."""
        known = [*self._links, *self.address.servers]
        self.close()
        links: dict[ServerAddress, RedisLink] = {}
        try:
            first = await self._find_first(dict.fromkeys(known), links)
            ranges = await _read_ranges(first)
            needed = dict.fromkeys(server for _, server in ranges)
            await _all(self._open(each, links) for each in needed if each not in links)
            kept = {each: links.pop(each) for each in needed}
        finally:
            for link in links.values():
                link.close()
        self._links = kept
        await _load_scripts(kept.values())
        for link in kept.values():
            if link.error:
                raise link.error
        self._ends = [end for end, _ in ranges]
        self._owners = [kept[server] for _, server in ranges]
        self.about = _describe(first, len(needed))

    def close(self) -> None:
        self._ends, self._owners = [], []
        for link in self._links.values():
            link.close()
        self._links = {}

    def find_link(self, slot: int) -> RedisLink:
        """Return the connection to the server of a slot."""
        if not self._owners:
            raise ConnectionError("not connected")
        return self._owners[bisect_left(self._ends, slot)]

    async def run(self, commands: Sequence[tuple[int, Command]]) -> list[Any]:
        """Run commands, each where its slot is, and return the answers in the same order.

        Those to the same server run in their order. An error of one is raised when all are done.
        """
        by_link: dict[RedisLink, list[int]] = defaultdict(list)
        for position, (slot, _) in enumerate(commands):
            by_link[self.find_link(slot)].append(position)
        sent = [
            link.send([commands[each][1] for each in positions])
            for link, positions in by_link.items()
        ]
        replies: list[Any] = [None] * len(commands)
        answered = [await sent[0]] if len(sent) == 1 else await _all(sent)
        for positions, answers in zip(by_link.values(), answered, strict=True):
            for position, answer in zip(positions, answers, strict=True):
                is_error = isinstance(answer, hiredis.ReplyError)
                command = commands[position][1]
                replies[position] = await self._follow(command, answer) if is_error else answer
        return replies

    async def ping(self) -> None:
        """Return if every server answers."""
        if not self.is_connected:
            raise ConnectionError("not connected")
        await _all(link.send([("PING",)]) for link in self.links)

    async def _follow(self, command: Command, error: hiredis.ReplyError) -> Any:
        """Run a command on the server its key has moved to, while its slot moves; else raise."""
        kind, _, rest = str(error).partition(" ")
        host, _, port = rest.rpartition(" ")[2].rpartition(":")
        link = self._links.get(ServerAddress(host, int(port))) if kind == "ASK" else None
        if link is None:
            raise RedisRefused(str(error))
        _, reply = await link.send([("ASKING",), command])
        check(reply)
        return reply

    async def _open(
        self, server: ServerAddress, links: dict[ServerAddress, RedisLink]
    ) -> RedisLink:
        link = await open_link(self.address, server, self._receive, self._lose)
        links[server] = link
        return link

    async def _find_first(
        self, known: Iterable[ServerAddress], links: dict[ServerAddress, RedisLink]
    ) -> RedisLink:
        """Connect to all known servers at once; return the first that is usable."""
        opened = await asyncio.gather(
            *(self._open(each, links) for each in known), return_exceptions=True
        )
        failure: BaseException = ConnectionError("no server")
        for link in opened:
            if isinstance(link, BaseException):
                failure = link
                continue
            try:
                await _check_usable(link)
            except FAILURES as error:
                failure = error
            else:
                return link
        raise failure

    def _receive(self, channel: bytes, data: bytes) -> None:
        self.on_push(channel, data)

    def _lose(self, link: RedisLink) -> None:
        # One that was opened and is not used yet does not matter.
        if self._links.get(link.server) is link and link.error is not None:
            self.on_lost(link.error)


def slot_of(name: str) -> int:
    """Return the slot of a key or channel: of the part between braces, if there is one."""
    start = name.find("{")
    end = name.find("}", start + 2) if start >= 0 else -1
    tag = name[start + 1 : end] if end > 0 else name
    return binascii.crc_hqx(tag.encode(), 0) % _SLOTS


async def _all(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """Wait for all of them, also if one fails; then raise its error."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return results


async def _load_scripts(links: Iterable[RedisLink]) -> None:
    loads: list[Command] = [("SCRIPT", "LOAD", each.text) for each in SCRIPTS]
    for replies in await _all(link.send(loads) for link in links):
        check(*replies)


async def _check_usable(link: RedisLink) -> None:
    """Refuse a server that is too old, is a replica or Sentinel, or has no working Cluster."""
    mode, role, version = (link.hello[each] for each in (b"mode", b"role", b"version"))
    if int(version.split(b".")[0]) < LEAST_VERSION:
        raise RedisRefused(f"VERSION {version.decode()} is too old, {LEAST_VERSION}.0 is needed")
    if mode == b"cluster":
        (info,) = await link.send([("CLUSTER", "INFO")])
        if b"cluster_state:ok" not in bytes(info):
            raise RedisRefused("CLUSTERDOWN the Cluster does not serve all slots")
    elif mode == b"sentinel":
        raise RedisRefused("SENTINEL this is a Sentinel, not a server")
    elif role != b"master":
        raise RedisRefused("READONLY this is a replica")


async def _read_ranges(link: RedisLink) -> list[tuple[int, ServerAddress]]:
    """Return the last slot of each range, in order, with the server that it belongs to."""
    if link.hello[b"mode"] != b"cluster":
        return [(_SLOTS - 1, link.server)]
    (reply,) = await link.send([("CLUSTER", "SLOTS")])
    check(reply)
    ranges = []
    for _first, last, (host, port, *_), *_replicas in sorted(reply, key=lambda each: int(each[0])):
        name = host.decode() if host else link.server.host
        ranges.append((last, ServerAddress(name, port)))
    return ranges


def _describe(link: RedisLink, primaries: int) -> About:
    hello = link.hello
    is_cluster = hello[b"mode"] == b"cluster"
    return About(
        hello[b"server"].decode(), hello[b"version"].decode(), primaries if is_cluster else 0
    )


async def connect_once(address: RedisAddress) -> About:
    """Connect, and return what Redis is; `RedisRefused`, `OSError` or `TimeoutError` otherwise."""
    client = RedisClient(address)
    with contextlib.closing(client):
        await client.connect()
        await client.ping()
        return client.about
