"""Which node holds which device: hashes in Redis, the commands on them and their answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any
from zlib import crc32

from clarion.nodes.redis.client import slot_of
from clarion.nodes.redis.link import Command
from clarion.nodes.redis.scripts import (
    BEAT_DIGITS,
    EXPIRES_S,
    HOLD,
    NODE_START,
    RELEASE,
    SINCE_DIGITS,
    SWEEP,
)
from clarion.pacing import cut

# Hashes, so that a Cluster shares the load; also the channels that all nodes subscribe to.
PARTS = 16
# Devices in one command: a server does nothing else meanwhile.
_AT_A_TIME = 500
_SWEPT_AT_A_TIME = 1_000

Step = tuple[int, Command]


class DevicePresence:
    """The commands of one node."""

    def __init__(self, namespace: str, node: str) -> None:
        self._node = f"{node}/"
        # How often this node subscribed: others may remove what it wrote before the last time.
        self.incarnation = 0
        # The second in which everything was last written.
        self.written_at = inf
        self._keys = [f"{namespace}:at:{{{part:02}}}" for part in range(PARTS)]
        self._slots = [slot_of(key) for key in self._keys]
        # In each hash until that is emptied.
        self._mark = f"!{node}"

    def hold(self, devices: Iterable[tuple[str, int]], second: int) -> Iterator[Step]:
        """Yield the steps that make this node the holder of devices, given with their times."""
        parts: dict[int, list[str]] = defaultdict(list)
        for device_id, since in devices:
            parts[_part_of(device_id)] += (device_id, f"{since:0{SINCE_DIGITS}}")
        beat = f"{second:0{BEAT_DIGITS}}"
        for part, pairs in parts.items():
            for some in cut(pairs, 2 * _AT_A_TIME):
                yield self._hold(part, beat, some)

    def release(self, device_ids: Iterable[str], holder: str = "") -> Iterator[Step]:
        """Yield the steps that remove devices of this node, or of a holder that is gone."""
        for part, some in _group(device_ids).items():
            for each in cut(some, _AT_A_TIME):
                yield self._run(RELEASE.digest, part, holder or self._node, *each)

    def find(self, device_ids: Collection[str]) -> Iterator[tuple[Sequence[str], Step]]:
        """Yield the steps that read the holders of devices, with the devices of each."""
        for part, some in _group(device_ids).items():
            for each in cut(some, _AT_A_TIME):
                yield each, (self._slots[part], ("HMGET", self._keys[part], *each))

    def mark(self, second: int) -> list[Step]:
        """Return the steps that write the mark of this node into each hash."""
        beat, since = f"{second:0{BEAT_DIGITS}}", "0" * SINCE_DIGITS
        return [self._hold(part, beat, (self._mark, since)) for part in range(PARTS)]

    def unmark(self) -> list[Step]:
        """Return the steps that remove the marks of this node."""
        return [self._run(RELEASE.digest, part, self._node, self._mark) for part in range(PARTS)]

    def find_mark(self) -> list[Step]:
        """Return the steps that read, for each hash, whether it has the mark or was emptied."""
        return [
            (slot, ("HEXISTS", key, self._mark))
            for slot, key in zip(self._slots, self._keys, strict=True)
        ]

    def sweep(self, part: int, second: int, cursor: int) -> Step:
        """Return the step that removes the expired entries of a part of a hash."""
        return self._run(SWEEP.digest, part, second, cursor, _SWEPT_AT_A_TIME)

    def _hold(self, part: int, beat: str, pairs: Sequence[str]) -> Step:
        return self._run(HOLD.digest, part, beat, self._node, f"{self.incarnation}/", *pairs)

    def _run(self, digest: str, part: int, *values: str | int) -> Step:
        return self._slots[part], ("EVALSHA", digest, 1, self._keys[part], *values)


def read_changes(answers: Iterable[Sequence[bytes]]) -> Iterator[tuple[str, str]]:
    """Yield the devices of what `hold` answered, and their former holder; '' if this node lost."""
    for answer in answers:
        for device_id, former in zip(answer[::2], answer[1::2], strict=True):
            yield device_id.decode(), former.decode()


def read_holders(
    asked: Iterable[Sequence[str]], answers: Iterable[Any], second: int
) -> Mapping[str, str]:
    """Return the holders of the devices that are held: "NODE/INCARNATION/"."""
    expired = f"{second - EXPIRES_S:0{BEAT_DIGITS}}".encode()
    return {
        device_id: value[NODE_START:].decode()
        for some, values in zip(asked, answers, strict=True)
        for device_id, value in zip(some, values, strict=True)
        if value and value[SINCE_DIGITS:NODE_START] >= expired
    }


def _part_of(device_id: str) -> int:
    return crc32(device_id.encode()) % PARTS


def _group(device_ids: Iterable[str]) -> dict[int, list[str]]:
    parts: dict[int, list[str]] = defaultdict(list)
    for device_id in device_ids:
        parts[_part_of(device_id)].append(device_id)
    return parts
