"""What happens in the demo while it runs: events, readers, topic messages, devices."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from clarion.cli.demo.people import Person
from clarion.cli.demo.preparation import Preparation, run_some
from clarion.cli.demo.progress import Counts, ProgressLine
from clarion.cli.demo.shop import TOPICS
from clarion.cli.device.client import DeviceClient, Gateway
from clarion.cli.device.connection import Notification, Ready
from clarion.cli.device.credentials import Device
from clarion.client import ApiError, AsyncClarion, NotificationPage, NotReached
from clarion.errors import CommandFailed

# At speed 1, on average: an event every second, more of them in some minutes than in others.
_EVENT_EVERY_S = 1.0
_READ_EVERY_S = 2.0
_BROADCAST_EVERY_S = 20.0
_WAVE_S = 300.0
_PAGE = 10
_TICK_S = 1.0
_SHORTEST_S = 0.02


@dataclass(slots=True)
class Life:
    """Lets things happen until it is stopped."""

    clarion: AsyncClarion
    preparation: Preparation
    gateway: Gateway
    counts: Counts
    chance: random.Random
    speed: float
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, devices: Sequence[Device], seconds: float) -> None:
        """Let things happen for a time, or until it is stopped."""
        line, loop = ProgressLine(self.counts), asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._connect(device)) for device in devices]
            for act, every_s in (
                (self._send, _EVENT_EVERY_S),
                (self._look, _READ_EVERY_S),
                (self._broadcast, _BROADCAST_EVERY_S),
            ):
                running.append(group.create_task(self._repeat(act, every_s)))
            while (elapsed_s := loop.time() - began) < seconds and not self.stopped.is_set():
                line.tick(elapsed_s)
                await self._wait(min(_TICK_S, seconds - elapsed_s))
            for task in running:
                task.cancel()
        line.finish(loop.time() - began)

    async def read_some(self, people: Sequence[Person]) -> None:
        """Let people look at their inboxes."""
        await run_some(self._look_at_inbox(each) for each in people)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopped.wait()
        except TimeoutError:
            pass

    async def _repeat(self, act: Callable[[], Awaitable[None]], every_s: float) -> None:
        """Do something at random times; a server that is away or busy is tried again later."""
        loop = asyncio.get_running_loop()
        while True:
            wave = 1 + 0.7 * math.sin(loop.time() * 2 * math.pi / _WAVE_S)
            pause_s = self.chance.expovariate(1 / every_s) / self.speed / wave
            await asyncio.sleep(max(pause_s, _SHORTEST_S))
            try:
                await act()
            except (ApiError, NotReached):
                self.counts.refused += 1

    async def _send(self) -> None:
        event = self.preparation.draft(self.chance)
        (sent,) = await self.clarion.send_batch([event])
        self.counts.events += sent.event_id is not None

    async def _look(self) -> None:
        await self._look_at_inbox(self.chance.choice(self.preparation.people))

    async def _look_at_inbox(self, person: Person) -> None:
        """Let somebody read, click and dismiss some of their newest notifications."""
        path = f"/v1/users/{person.id}/notifications"
        page = await self.clarion.request(
            "GET", path, returns=NotificationPage, query={"limit": _PAGE}
        )
        for item in page.items:
            if self.chance.random() > person.interest:
                continue
            if item.read_at is None:
                await self._act(f"{path}/{item.id}/read")
                self.counts.reads += 1
            if item.deeplink and self.chance.random() < person.interest:
                await self._act(f"{path}/{item.id}/click")
                self.counts.clicks += 1
            if self.chance.random() < 0.2:  # noqa: PLR2004 - one in five
                await self._act(f"{path}/{item.id}/dismiss")
                self.counts.dismissals += 1

    async def _act(self, path: str) -> None:
        await self.clarion.request("POST", path, returns=msgspec.Raw, is_repeatable=True)

    async def _broadcast(self) -> None:
        topic = self.chance.choice(TOPICS)
        body = {"payload": {"aps": {"alert": f"Something new about {topic}"}}, "ttl_s": 3600}
        await self.clarion.request(
            "POST", f"/v1/topics/{topic}/messages", body, returns=msgspec.Raw
        )

    async def _connect(self, device: Device) -> None:
        try:
            await DeviceClient(device, self.gateway, self).run()
        except CommandFailed:  # it was revoked: the user has newer ones
            self.counts.connected -= 1

    # What the devices report.

    async def on_ready(self, device: Device, ready: Ready) -> None:
        del device, ready
        self.counts.connected += 1

    def on_message(self, device: Device, message: Notification) -> bool:
        del device, message
        self.counts.received += 1
        return not self.stopped.is_set()

    def on_lost(self, device: Device, why: str, retry_s: float) -> None:
        del device, why, retry_s
        self.counts.connected -= 1
