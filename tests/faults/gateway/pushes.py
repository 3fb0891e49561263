"""What a provider sends in a chaos test: over HTTP/2, repeated until it is accepted."""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.installation import token_of
from bench.load import Load, Request, run

COLLAPSE_GROUPS = 2  # on each device
BRIEF_LIFE_S = 2
CONNECTIONS = 4
STREAMS = 50
ACCEPTED = 200
SERVER_FAULT = 500


class Lifetime(StrEnum):
    """How a push may end other than by its delivery."""

    KEPT = "kept"  # not at all
    COLLAPSING = "collapsing"  # a newer one replaces it
    ONE_SHOT = "one shot"  # the device was offline
    BRIEF = "brief"  # it expired


@dataclass(frozen=True, kw_only=True)
class Push:
    """One push; its number is its payload."""

    number: int
    id: str
    device: int
    lifetime: Lifetime = Lifetime.KEPT
    priority: int = 10
    collapse_id: str | None = None

    def request(self, headers: tuple[tuple[str, str], ...]) -> Request:
        """Make the request, with what follows from the present time."""
        named = [("apns-id", self.id), ("apns-priority", str(self.priority))]
        if self.collapse_id is not None:
            named.append(("apns-collapse-id", self.collapse_id))
        if self.lifetime is Lifetime.ONE_SHOT:
            named.append(("apns-expiration", "0"))
        elif self.lifetime is Lifetime.BRIEF:
            named.append(("apns-expiration", str(int(time.time()) + BRIEF_LIFE_S)))
        return Request(
            method="POST",
            path=f"/3/device/{token_of(self.device)}",
            headers=(*headers, *named),
            body=b'{"aps":{"alert":"chaos"},"number":%d}' % self.number,
        )


def plan(chance: random.Random, *, devices: int, count: int) -> list[Push]:
    """Mix pushes of all lifetimes and priorities to random devices."""
    return [_push(chance, number, devices) for number in range(count)]


def _push(chance: random.Random, number: int, devices: int) -> Push:
    lifetime = chance.choices([*Lifetime], weights=[80, 14, 4, 2])[0]
    group = f"group {chance.randrange(COLLAPSE_GROUPS)}"
    return Push(
        number=number,
        id=str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        device=chance.randrange(devices),
        lifetime=lifetime,
        priority=chance.choices([10, 5, 1], weights=[70, 20, 10])[0],
        collapse_id=group if lifetime is Lifetime.COLLAPSING else None,
    )


class Provider:
    """Sends all pushes on schedule and repeats those that got no answer, or a 5xx."""

    def __init__(
        self, port: int, headers: tuple[tuple[str, str], ...], pushes: Sequence[Push]
    ) -> None:
        self.accepted: set[str] = set()
        self.unknown: set[str] = set()
        self.refused: Counter[str] = Counter()
        self.server_is_up = asyncio.Event()
        self.server_is_up.set()
        self._port = port
        self._headers = headers
        self._rest = list(pushes)
        self._sent: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._progress = asyncio.Event()

    async def push_all(self, rate: float) -> None:
        """Return when all are accepted, or one was refused for good."""
        while self._rest and not self.refused:
            await self.server_is_up.wait()
            await asyncio.to_thread(self._push_round, list(self._rest), rate)
            self._rest = [push for push in self._rest if push.id not in self.accepted]
            self.unknown |= self._sent - self.accepted
        self._progress.set()

    async def reach(self, accepted: int) -> None:
        """Return when so many are accepted, or one was refused for good."""
        while len(self.accepted) < accepted and not self.refused:
            self._progress.clear()
            await self._progress.wait()

    def _push_round(self, rest: list[Push], rate: float) -> None:
        """Push until all is sent or the connections are lost. Runs in a thread of its own."""
        load = Load(
            host="127.0.0.1",
            port=self._port,
            connections=CONNECTIONS,
            streams=STREAMS,
            total=len(rest),
            rate=rate,
            duration_s=len(rest) / rate + 1,
            connect_s=5.0,
            grace_s=20.0,
        )

        def start(index: int) -> Request:
            self._sent.add(rest[index].id)
            return rest[index].request(self._headers)

        def note(index: int, status: int, body: bytes) -> None:
            if status == ACCEPTED:
                self.accepted.add(rest[index].id)
            elif status < SERVER_FAULT:
                self.refused[f"{status} {body.decode()}"] += 1
            self._loop.call_soon_threadsafe(self._progress.set)

        run(load, start, note)
