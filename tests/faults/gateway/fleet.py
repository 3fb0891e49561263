"""Devices that crash, vanish and come back while they are sent to, and what each has kept."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of

# Of a thousand arrivals, so many end in a crash: before the device has kept it, or before it said.
CRASHES_BEFORE_KEEPING = 10
CRASHES_BEFORE_ACKNOWLEDGING = 10
AWAY_S = (0.01, 1.0)


Arrival = tuple[str, int]  # the id of a message, and the number that is its payload


class ChaosDevice:
    """One device: what it keeps outlives its connections.

    One that is hasty acknowledges before it keeps: such a device loses messages, and the books of
    a test must show it.
    """

    def __init__(
        self, number: int, port: int, chance: random.Random, *, is_hasty: bool = False
    ) -> None:
        self.kept: Counter[Arrival] = Counter()  # and how often it came
        self.is_calm = False
        self.ready = asyncio.Event()
        self.codes: Counter[int | None] = Counter()
        self._number = number
        self._port = port
        self._chance = chance
        self._is_hasty = is_hasty
        self._socket: DeviceSocket | None = None
        self._closed = asyncio.Event()

    async def live(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            self._closed.clear()
            try:
                token, secret = token_of(self._number), secret_of(self._number)
                self._socket = await connect(self._port, token, secret, self)
            except OSError:  # the server is away
                self._closed.set()
            await self._closed.wait()
            await asyncio.sleep(self._chance.uniform(*AWAY_S))

    def vanish(self) -> None:
        """Lose the connection, whatever is under way."""
        if self._socket is not None and self.ready.is_set():
            self._socket.cut()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.ready.set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        fate = self._chance.randrange(1000) if not self.is_calm else 1000
        if self._is_hasty:
            socket.acknowledge(messages)
        if fate < CRASHES_BEFORE_KEEPING:
            socket.transport.close()
            return
        self.kept.update(
            (message.id, json.loads(bytes(message.payload))["number"]) for message in messages
        )
        if fate < CRASHES_BEFORE_KEEPING + CRASHES_BEFORE_ACKNOWLEDGING:
            socket.cut()
        elif not self._is_hasty:
            socket.acknowledge(messages)

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket  # one at a time, and perhaps not even `connect` has given it to us
        self.codes[code] += 1
        self.ready.clear()
        self._closed.set()


class Fleet:
    """All the devices."""

    def __init__(
        self, count: int, port: int, chance: random.Random, *, is_hasty: bool = False
    ) -> None:
        self.devices = [
            ChaosDevice(number, port, chance, is_hasty=is_hasty) for number in range(count)
        ]
        self.vanished = 0
        self._chance = chance
        self._is_calm = False

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Have the devices online for as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(device.live()) for device in self.devices]
            await asyncio.gather(*(device.ready.wait() for device in self.devices))
            yield
            for task in tasks:
                task.cancel()

    async def torment(self, vanishing_a_second: float) -> None:
        """Cut devices off at random moments until `calm_down`."""
        while not self._is_calm:
            self._chance.choice(self.devices).vanish()
            self.vanished += 1
            await asyncio.sleep(self._chance.expovariate(vanishing_a_second))  # the next instant

    def calm_down(self) -> None:
        """Let every device come back and stay."""
        self._is_calm = True
        for device in self.devices:
            device.is_calm = True

    @property
    def kept_ids(self) -> set[str]:
        return {message_id for device in self.devices for message_id, _ in device.kept}

    @property
    def arrivals(self) -> int:
        """How often anything came: what exceeds the number of messages came again."""
        return sum(device.kept.total() for device in self.devices)
