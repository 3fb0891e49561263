"""Rate limits in Redis or Valkey, shared by all nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clarion.nodes.memory import pick
from clarion.nodes.port import Allowance, Limits, Quota, Taken
from clarion.nodes.redis.breaker import RedisBreaker
from clarion.nodes.redis.client import FAILURES, slot_of
from clarion.nodes.redis.link import Command
from clarion.nodes.redis.scripts import TAKE_ALL


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """The `Limits` port in Redis. While Redis is unavailable, each node counts on its own."""

    breaker: RedisBreaker
    fallback: Limits

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        taken = await self.take_all((Quota(key, limit),), window_s=window_s, now=now)
        return taken.allowance

    async def take_all(self, quotas: Sequence[Quota], *, window_s: int, now: int) -> Taken:
        if not self.breaker.is_open:
            try:
                counts = await self._count(quotas, window_s, now)
                return pick(quotas, counts, window_s=window_s, now=now)
            except FAILURES as error:
                self.breaker.open(error)
        return await self.fallback.take_all(quotas, window_s=window_s, now=now)

    async def _count(self, quotas: Sequence[Quota], window_s: int, now: int) -> list[int]:
        """Count in one call. In a Cluster it is one for each slot, until a limit is exceeded."""
        client = self.breaker.client
        window = f"{window_s}:{now // (window_s * 1000)}"
        names = [f"{client.namespace}:limit:{_hash(each.key)}:{window}" for each in quotas]
        counts: list[int] = []
        for slot, part in self._split(names):
            limits = [each.limit for each in quotas[part]]
            values: Command = (*names[part], window_s, *limits)
            command: Command = ("EVALSHA", TAKE_ALL.digest, len(limits), *values)
            (answer,) = await client.run([(slot, command)])
            counts += answer
            if len(answer) < len(limits) or answer[-1] > limits[-1]:
                break
        return counts

    def _split(self, names: Sequence[str]) -> Iterator[tuple[int, slice]]:
        """Yield the slot of neighbours that are counted in one call, and where they are."""
        slots = [slot_of(each) for each in names]
        if not self.breaker.client.about.primaries:
            yield slots[0], slice(0, len(names))
            return
        start = 0
        for end in range(1, len(slots) + 1):
            if end == len(slots) or slots[end] != slots[start]:
                yield slots[start], slice(start, end)
                start = end


def _hash(key: str) -> str:
    """Return the name of a key in Redis: keys have the ids of users, which must not be there."""
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
