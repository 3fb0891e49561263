"""Fills the demo app through the API: types, providers, people, devices, and a first history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from clarion.cli.demo.people import Person
from clarion.cli.demo.progress import Counts
from clarion.cli.demo.shop import (
    PROVIDERS,
    SEGMENTS,
    TEMPLATES,
    TOPICS,
    TYPES,
    VARIABLES,
    draft_event,
)
from clarion.cli.device.credentials import Device
from clarion.client import AsyncClarion
from clarion.client.apps import make_event
from clarion.clock import SystemClock, to_rfc3339

T = TypeVar("T")
_BATCH = 100
# Enough for the server to group their commits, and few enough to leave it room for others.
_PARALLEL = 16
_FOLLOWED = 2
_DEVICE_LABEL = "clarion demo"
_LATER_MS = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Preparation:
    """Makes what the demo needs. Everything but devices and events is the same when repeated."""

    clarion: AsyncClarion
    people: Sequence[Person]
    chance: random.Random
    counts: Counts

    async def run(self) -> list[Device]:
        """Make everything; return the devices that are to be connected."""
        await self._define()
        await self._add_people()
        return await self._add_devices()

    async def add_history(self, events: int) -> None:
        """Send a batch of events, and some that are scheduled, cancelled or for many users."""
        drafts = [self.draft(self.chance) for _ in range(events)]
        for start in range(0, len(drafts), _BATCH):
            sent = await self.clarion.send_batch(drafts[start : start + _BATCH])
            self.counts.events += sum(each.event_id is not None for each in sent)
        await self._send_special()

    def draft(self, chance: random.Random) -> dict[str, Any]:
        """Return something that happens to somebody, caused by somebody else."""
        type_name, fields = draft_event(chance)
        actor, recipient = chance.sample(self.people, 2)
        by = {"actor": {"id": actor.id, "name": actor.user["name"]}}
        return make_event(type_name, recipient.id, {**by, **fields})

    async def _define(self) -> None:
        for name, definition in TYPES.items():
            await self._put(f"/v1/types/{name}", definition)
        for (name, channel, language), (subject, body) in TEMPLATES.items():
            template = {"body": body, "variables": VARIABLES[name], "language": language}
            template |= {"subject": subject} if subject else {}
            await self._put(f"/v1/types/{name}/templates/{channel}", template)
        for path, provider in PROVIDERS.items():
            await self._put(f"/v1/providers/{path}", provider)
        for name, text in SEGMENTS.items():
            await self._put(f"/v1/segments/{name}", {"filter": text})
        for topic in TOPICS:
            await self._put(f"/v1/topics/{topic}", {"open": True})

    async def _add_people(self) -> None:
        users = [each.user for each in self.people]
        for start in range(0, len(users), _BATCH):
            body = {"users": users[start : start + _BATCH]}
            await self._call("POST", "/v1/users/batch", body, is_repeatable=True)
        paths = [(f"/v1/users/{each.id}/preferences", each.preferences) for each in self.people]
        await run_some(
            self._call("PATCH", path, wanted, is_repeatable=True) for path, wanted in paths
        )
        await run_some(
            self._put(f"/v1/users/{each.id}/topics/{topic}")
            for each in self.people
            for topic in self.chance.sample(TOPICS, _FOLLOWED)
        )

    async def _add_devices(self) -> list[Device]:
        """Register a device for each who has one; return those that are online."""
        owners = [each for each in self.people if each.platform is not None]
        devices = await run_some(self._register(each) for each in owners)
        await run_some(
            self._put(f"/v1/devices/{device.device_id}/topics/{self.chance.choice(TOPICS)}")
            for device in devices
        )
        pairs = list(zip(owners, devices, strict=True))
        away = [device for owner, device in pairs if not owner.is_online]
        if away:  # one of them is reported lost, and listed in the feedback
            path = f"/v1/devices/{away[-1].device_id}/invalidate"
            await self._call("POST", path, {"reason": "uninstalled"}, is_repeatable=True)
        return [device for owner, device in pairs if owner.is_online]

    async def _register(self, owner: Person) -> Device:
        body = {
            "platform": owner.platform,
            "user_id": owner.id,
            "label": _DEVICE_LABEL,
            "language": owner.user["language"],
            "timezone": owner.user["timezone"],
        }
        return await self.clarion.request("POST", "/v1/devices", body, returns=Device)

    async def _send_special(self) -> None:
        """Send to a topic, a segment and everybody; schedule one event, and cancel another."""
        news: dict[str, Any] = {"data": {"snippet": "The shop is open on Sunday, too."}}
        for recipient in ({"topic": "news"}, {"segment": "vips"}, {"all": True}):
            await self.clarion.send("NEWS_SYSTEM_UPDATE", to=recipient, **news)
        first, second = self.people[:2]
        later = {**news, "scheduled_at": to_rfc3339(SystemClock().now() + _LATER_MS)}
        await self.clarion.send("NEWS_SYSTEM_UPDATE", to=first.id, **later)
        cancelled = await self.clarion.send("NEWS_SYSTEM_UPDATE", to=second.id, **later)
        await self._call("DELETE", f"/v1/events/{quote(cancelled.event_id)}")
        await self._send_in_vain()
        self.counts.events += 6

    async def _send_in_vain(self) -> None:
        """Send something that will be a dead letter: its recipient never accepts anything."""
        recipient = next(each for each in self.people if each.is_failing)
        await self.clarion.send("STOCK_EXPORTED", to=recipient.id, data={"order": "A-10000"})

    async def _put(self, path: str, body: object = None) -> None:
        await self._call("PUT", path, body)

    async def _call(self, method: str, path: str, body: object = None, **options: Any) -> None:
        await self.clarion.request(method, path, body, returns=msgspec.Raw, **options)


async def run_some(calls: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Run calls, a few at a time; return their results in order."""
    room = asyncio.Semaphore(_PARALLEL)

    async def run(call: Coroutine[None, None, T]) -> T:
        async with room:
            return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(call)) for call in calls]
    return [each.result() for each in tasks]
