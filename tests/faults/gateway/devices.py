"""Devices that crash, disconnect and reconnect under load, and the messages that each keeps."""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.device import DeviceSocket, Notification, Ready, connect
from bench.installation import secret_of, token_of

# Of a thousand receptions, so many end in a crash: before the device kept what came, or before it
# acknowledged it.
CRASHES_BEFORE_KEEPING = 10
CRASHES_BEFORE_ACKNOWLEDGING = 10
AWAY_S = (0.01, 1.0)


Arrival = tuple[str, int]  # the id of a message, and the number that is its payload


class ChaosDevice:
    """One device: what it keeps outlives its connections.

    One that acknowledges early does so before it keeps a message: such a device loses messages, and
    a test must find that. One that is far away acknowledges after so many seconds.
    """

    def __init__(
        self,
        number: int,
        port: int,
        chance: random.Random,
        *,
        acknowledges_early: bool = False,
        distance_s: float = 0.0,
    ) -> None:
        self.kept: Counter[Arrival] = Counter()  # and how often each came
        self.is_stable = False
        self.ready = asyncio.Event()
        self.codes: Counter[int | None] = Counter()
        self._number = number
        self._port = port
        self._chance = chance
        self._acknowledges_early = acknowledges_early
        self._distance_s = distance_s
        self._socket: DeviceSocket | None = None
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Connect, and reconnect, until cancelled."""
        while True:
            self._closed.clear()
            try:
                token, secret = token_of(self._number), secret_of(self._number)
                self._socket = await connect(self._port, token, secret, self)
            except OSError:  # the server is away
                self._closed.set()
            await self._closed.wait()
            await asyncio.sleep(self._chance.uniform(*AWAY_S))

    def disconnect(self) -> None:
        """Lose the connection, whatever is under way."""
        if self._socket is not None and self.ready.is_set():
            self._socket.cut()

    def on_ready(self, socket: DeviceSocket, ready: Ready) -> None:
        del socket, ready
        self.ready.set()

    def on_messages(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        draw = 1000 if self.is_stable else self._chance.randrange(1000)
        if self._acknowledges_early:
            socket.acknowledge(messages)
        if draw < CRASHES_BEFORE_KEEPING:
            socket.transport.close()
            return
        self.kept.update(
            (message.id, json.loads(bytes(message.payload))["number"]) for message in messages
        )
        if draw < CRASHES_BEFORE_KEEPING + CRASHES_BEFORE_ACKNOWLEDGING:
            socket.cut()
        elif self._distance_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self._distance_s, self._acknowledge, socket, messages)
        elif not self._acknowledges_early:
            socket.acknowledge(messages)

    def _acknowledge(self, socket: DeviceSocket, messages: list[Notification]) -> None:
        if not socket.transport.is_closing():
            socket.acknowledge(messages)

    def on_closed(self, socket: DeviceSocket, code: int | None) -> None:
        del socket  # one at a time, and perhaps not even `connect` has given it to us
        if self.ready.is_set():
            self.codes[code] += 1
        self.ready.clear()
        self._closed.set()


class ChaosDevices:
    """All the devices of a test."""

    def __init__(
        self,
        count: int,
        *ports: int,
        chance: random.Random,
        acknowledges_early: bool = False,
        distance_s: float = 0.0,
    ) -> None:
        """Devices take turns with the ports."""
        self.devices = [
            ChaosDevice(
                number,
                port,
                chance,
                acknowledges_early=acknowledges_early,
                distance_s=distance_s,
            )
            for number, port in zip(range(count), itertools.cycle(ports), strict=False)
        ]
        self.disconnects = 0
        self._chance = chance
        self._is_stable = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the devices online for as long as the block lasts."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(device.run()) for device in self.devices]
            await asyncio.gather(*(device.ready.wait() for device in self.devices))
            yield
            for task in tasks:
                task.cancel()

    async def disconnect_at_random(self, per_second: float) -> None:
        """Cut devices off at random moments until `stabilise`."""
        while not self._is_stable:
            self._chance.choice(self.devices).disconnect()
            self.disconnects += 1
            await asyncio.sleep(self._chance.expovariate(per_second))  # the next instant

    def stabilise(self) -> None:
        """Let every device reconnect and stay."""
        self._is_stable = True
        for device in self.devices:
            device.is_stable = True

    @property
    def kept_ids(self) -> set[str]:
        return {message_id for device in self.devices for message_id, _ in device.kept}

    @property
    def arrivals(self) -> int:
        """How often anything came: what exceeds the number of messages came again."""
        return sum(device.kept.total() for device in self.devices)
