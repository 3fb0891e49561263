"""One table: what is expired or pruned, how often, and by which step.

A step handles at most `CHUNK` rows and returns how many, so that requests never wait long behind
it. The supervisor runs each task in its own loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from clarion.analytics.model import KEPT_MS, Interval
from clarion.analytics.rollup import Rollup
from clarion.app.tables import TABLES
from clarion.errors import ClarionError
from clarion.history.sql.retention import find_old
from clarion.nodes.watch import Watch
from clarion.store.lifecycle import app_rows
from clarion.store.lifecycle.retention import DAY_MS, list_prunes
from clarion.telemetry.outages import Work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from clarion.access.sql import Apps, Keys
    from clarion.app.stores import Stores
    from clarion.clock import Clock
    from clarion.nodes.port import Membership
    from clarion.people.erasure.eraser import Eraser
    from clarion.people.last_seen import LastSeen
    from clarion.push.dispatch import Dispatch
    from clarion.push.sql.devices import Devices
    from clarion.settings import Settings
    from clarion.store.engine import Engine

    # Takes the time, does at most a chunk, and returns how much it did.
    Step = Callable[[int], Awaitable[int]]

CHUNK = 500
# A device may have a thousand subscriptions and as many messages, which are deleted with it.
DEVICES_AT_ONCE = 10
# Longer than anything that began before the deletion of an app can still be written.
MARK_KEPT_MS = 3600 * 1000
_PAUSE_S = 0.05
_PRUNE_EVERY_S = 60
_COUNT_EVERY_S = 5
# A device that disconnects and reconnects within this time is written once. While the bus is
# disconnected, other nodes read there that a device has a newer connection.
_SEEN_EVERY_S = 30.0
_SEEN_DISCONNECTED_S = 2.0


@dataclass(frozen=True, slots=True)
class Task:
    """Something that is done at intervals."""

    name: str
    every_s: float
    step: Step
    clock: Clock
    # Whether this node does it; others do not then.
    is_mine: Callable[[], bool] = lambda: True
    # If set, it says when this is due.
    watch: Watch | None = None

    async def run(self) -> None:
        """Run it periodically until cancelled."""
        work = Work(self.name)
        while True:
            await (self.watch.until_due() if self.watch else asyncio.sleep(self.every_s))
            if not self.is_mine():
                continue
            with work.attempt():
                await self.run_once()

    async def run_once(self) -> None:
        """Do all that is due now, a chunk at a time."""
        now = self.clock.now()
        while await self.step(now) >= CHUNK and self.is_mine():  # noqa: ASYNC110 - a pause
            await asyncio.sleep(_PAUSE_S)


def list_tasks(
    stores: Stores,
    settings: Settings,
    *,
    dispatch: Dispatch,
    eraser: Eraser,
    last_seen: LastSeen,
    used_keys: set[str],
    membership: Membership,
) -> tuple[Task, ...]:
    """Return the tasks that expire, record, erase and prune in the background.

    Tasks on a node's own memory run on each node, the others only on the leader.
    """
    of_each: dict[str, tuple[float, Step]] = {
        "record_seen_users": (10, partial(last_seen.write, limit=CHUNK)),
        "record_used_keys": (60, partial(_record_used, used_keys, stores.keys)),
    }
    steps: dict[str, tuple[float, Step]] = {
        "expire_messages": (10, partial(dispatch.expire, limit=CHUNK)),
        "expire_topic_messages": (10, partial(stores.broadcasts.expire, limit=CHUNK)),
        "delete_apps": (5, partial(delete_apps, stores.engine, stores.apps)),
        "run_erasures": (2, eraser.run_due),
        "count_analytics": (_COUNT_EVERY_S, Rollup(stores.tally, CHUNK).step),
        "purge_deleted_users": (60, _before(settings.deleted_user_days, eraser.purge)),
    }
    prune = {name: (_PRUNE_EVERY_S, step) for name, step in _list_prunes(stores, settings).items()}
    clock, of_leader = stores.clock, {**steps, **prune}
    record_seen = partial(_record_seen, dispatch, stores.devices)
    watch = Watch(
        dispatch.forwarding.bus, disconnected_s=_SEEN_DISCONNECTED_S, connected_s=_SEEN_EVERY_S
    )
    return (
        Task("record_seen_devices", _SEEN_EVERY_S, record_seen, clock, watch=watch),
        *(Task(name, every_s, step, clock) for name, (every_s, step) in of_each.items()),
        *(
            Task(name, every_s, step, clock, lambda: membership.is_leading)
            for name, (every_s, step) in of_leader.items()
        ),
    )


def _list_prunes(stores: Stores, settings: Settings) -> dict[str, Step]:
    """Return what deletes old rows."""
    retention, days = stores.retention, settings
    return {
        **{
            f"prune_{table.name}": step
            for table, step in list_prunes(stores.engine, TABLES, settings, CHUNK)
        },
        "prune_orphaned_jobs": lambda _now: retention.prune_orphaned_jobs(CHUNK),
        "prune_messages": _of_every_app(stores.apps, stores.history.prune, days.message_days),
        "prune_events": _of_every_app(stores.apps, retention.prune_events, days.event_days),
        "prune_notifications": _before(
            days.notification_days, partial(_prune_notifications, stores)
        ),
        "prune_devices": partial(_prune_devices, stores, days.device_days * DAY_MS),
        "prune_audit_log": _before(days.audit_days, stores.audit_log.prune),
        "prune_former_device_users": _before(
            max(days.message_days, days.device_days), stores.devices.prune_former_users
        ),
        "prune_topics": _before(days.device_days, stores.topics.prune_deleted),
        **{
            f"prune_analytics_of_{interval}s": _prune_counts(stores, interval)
            for interval in Interval
        },
    }


def _prune_counts(stores: Stores, interval: Interval) -> Step:
    """Return the step that prunes the counts of minutes, hours or days."""
    return lambda now: stores.analytics.prune(interval, now - KEPT_MS[interval], CHUNK)


def _before(days: int, prune: Callable[[int, int], Awaitable[int]]) -> Step:
    """Return the step that prunes rows older than a number of days."""
    return lambda now: prune(now - days * DAY_MS, CHUNK)


def _of_every_app(apps: Apps, prune: Callable[[str, int, int], Awaitable[int]], days: int) -> Step:
    """Return the step that prunes rows older than a number of days, app by app."""

    async def step(now: int) -> int:
        before, most, last = now - days * DAY_MS, 0, ""
        while page := await apps.list(last):
            for app in page:
                most = max(most, await prune(app.id, before, CHUNK))
            last = page[-1].id
        return most

    return step


async def delete_apps(engine: Engine, apps: Apps, now: int) -> int:
    """Remove a chunk of each deleted app; return `CHUNK` or more if there is more to do.

    The row of the app stays as a marker until all its other rows are gone. The progress is in the
    store: after a crash, or on another node, the next step continues.
    """
    most = 0
    for app_id in await apps.list_deleted():
        removed = await app_rows.remove_some(engine, TABLES, app_id)
        most = max(most, removed)
        if not removed:
            await apps.remove_mark(app_id, now - MARK_KEPT_MS)
    return most


async def _record_seen(dispatch: Dispatch, devices: Devices, now: int) -> int:
    seen = {
        device_id: dispatch.seen.pop(device_id) for device_id in [*islice(dispatch.seen, CHUNK)]
    }
    try:
        await devices.touch(seen, now)
    except ClarionError:
        dispatch.seen = {**seen, **dispatch.seen}
        raise
    return len(seen)


async def _record_used(used_keys: set[str], keys: Keys, now: int) -> int:
    used = list(islice(used_keys, CHUNK))
    used_keys.difference_update(used)
    try:
        await keys.touch(used, now)
    except ClarionError:
        used_keys.update(used)
        raise
    return len(used)


async def _prune_notifications(stores: Stores, before: int, limit: int) -> int:
    found = await find_old(stores.engine, before, limit)
    await asyncio.gather(*(stores.inboxes.forget(*owner, ids) for owner, ids in found.items()))
    return sum(map(len, found.values()))


async def _prune_devices(stores: Stores, kept_ms: int, now: int) -> int:
    found = await stores.devices.find_old(now - kept_ms, CHUNK)
    for start in range(0, len(found), DEVICES_AT_ONCE):
        some = found[start : start + DEVICES_AT_ONCE]
        await asyncio.gather(*(stores.devices.delete(*each, now) for each in some))
    return len(found)
