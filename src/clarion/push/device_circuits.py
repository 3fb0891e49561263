"""The circuit breakers of devices: one whose connections keep failing is refused for a while.

Meanwhile it may not connect, and messages to it are only stored. A device has one connection at a
time, and one acknowledgement shows that it works: so failures are counted, not their share.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from clarion.sockets.protocol import CloseCode

# The failures that open a circuit.
LEAST_FAILURES = 5
# How long a failure counts. A device that reads but never acknowledges fails once a minute.
FAILURE_MS = 600_000
# One that disconnects at once may only check for messages: it counts if it does that in a loop.
SHORT_MS = 1_000
SHORT_COUNTS_MS = 10_000
# How long a circuit stays open; at random, so that many devices do not return at the same moment.
OPEN_MS = (15_000, 30_000)
# Beyond this, the device that failed longest ago is forgotten.
CIRCUITS_LIMIT = 10_000

_FAULTS = frozenset({CloseCode.BAD_FRAME, CloseCode.FRAME_TOO_LARGE, CloseCode.TOO_SLOW_OR_FAST})
# These say nothing about the device.
_OF_THE_SERVER = frozenset({CloseCode.RESTARTING, CloseCode.NOT_AUTHORISED, CloseCode.REVOKED})


class Ending(msgspec.Struct, frozen=True):
    """How a connection ended; without a code, the device or the network ended it."""

    code: CloseCode | None
    lasted_ms: int
    has_unacknowledged: bool

    @property
    def says_nothing(self) -> bool:
        """Whether the server ended it for reasons of its own."""
        return self.code in _OF_THE_SERVER

    @property
    def counts_ms(self) -> int:
        """How long it counts as a failure; 0 if it is not one."""
        if self.code in _FAULTS or self.has_unacknowledged:
            return FAILURE_MS
        return SHORT_COUNTS_MS if self.lasted_ms < SHORT_MS else 0


@dataclass(slots=True)
class _Circuit:
    """Closed; open until a time; then half open until the next connection works or fails."""

    # Until when each failure counts.
    failures: list[int] = field(default_factory=list)
    open_until: int | None = None

    def is_open(self, now: int) -> bool:
        return self.open_until is not None and now < self.open_until

    def is_half_open(self, now: int) -> bool:
        return self.open_until is not None and now >= self.open_until

    def is_over(self, now: int) -> bool:
        """Whether all failures have expired, and it is long since it was open."""
        return max(self.failures, default=(self.open_until or 0) + FAILURE_MS) <= now


class DeviceCircuits:
    """Those of the devices that failed lately on this node. Times are of the monotonic clock.

    `least_failures` of 0 turns them off.
    """

    def __init__(
        self, least_failures: int = LEAST_FAILURES, *, limit: int = CIRCUITS_LIMIT
    ) -> None:
        self._least = least_failures
        self._limit = limit
        # The device that failed last is last.
        self._circuits: OrderedDict[str, _Circuit] = OrderedDict()
        # Devices with messages that were not forwarded, and until when.
        self._put_off: dict[str, int] = {}

    def __len__(self) -> int:
        """How many devices failed lately."""
        return len(self._circuits)

    def count_open(self, now: int) -> int:
        """Return how many devices are refused."""
        return sum(each.is_open(now) for each in self._circuits.values())

    def find_wait_ms(self, device_id: str, now: int) -> int:
        """Return how long a device has to wait before it may connect; 0 if it need not."""
        circuit = self._circuits.get(device_id)
        if circuit is None or circuit.open_until is None:
            return 0
        return max(0, circuit.open_until - now)

    def acknowledge(self, device_id: str) -> None:
        """Close the circuit of a device that acknowledged a message, and forget its failures."""
        if self._circuits:
            self._circuits.pop(device_id, None)

    def end(self, device_id: str, ending: Ending, now: int) -> int:
        """Record the end of a connection; return for how many ms it opened the circuit, or 0."""
        if ending.says_nothing or not self._least:
            return 0
        if not ending.counts_ms:
            self._note_probe(device_id, now)
            return 0
        circuit = self._circuits.setdefault(device_id, _Circuit())
        self._circuits.move_to_end(device_id)
        if len(self._circuits) > self._limit:
            self._circuits.popitem(last=False)
        if circuit.is_open(now):
            return 0
        circuit.failures = [each for each in circuit.failures if each > now]
        circuit.failures.append(now + ending.counts_ms)
        if len(circuit.failures) < self._least and not circuit.is_half_open(now):
            return 0
        for_ms = random.randint(*OPEN_MS)  # noqa: S311 - jitter
        circuit.open_until, circuit.failures = now + for_ms, []
        return for_ms

    def _note_probe(self, device_id: str, now: int) -> None:
        """Close a half-open circuit: a connection ended as it should."""
        circuit = self._circuits.get(device_id)
        if circuit is not None and circuit.is_half_open(now):
            del self._circuits[device_id]

    def forget_old(self, now: int) -> None:
        """Forget the devices whose failures no longer count; once a heart-beat is enough."""
        old = [device_id for device_id, each in self._circuits.items() if each.is_over(now)]
        for device_id in old:
            del self._circuits[device_id]

    def puts_off(self, device_id: str, now: int) -> bool:
        """Whether a message to a device is not forwarded, because its circuit is open.

        It may have connected to another node: `take_put_off` returns it when the time is up.
        """
        if not self._circuits:
            return False
        circuit = self._circuits.get(device_id)
        if circuit is None or circuit.open_until is None or not circuit.is_open(now):
            return False
        if device_id not in self._put_off and len(self._put_off) >= self._limit:
            return False
        self._put_off[device_id] = circuit.open_until
        return True

    def take_put_off(self, now: int) -> list[str]:
        """Return the devices whose time is up, and for which messages were stored meanwhile."""
        due = [device_id for device_id, until in self._put_off.items() if until <= now]
        for device_id in due:
            del self._put_off[device_id]
        return due
