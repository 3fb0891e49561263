"""Deleted apps are known on every node, and what belongs to them ends."""

import asyncio

from clarion.access.deleted_apps import KEPT, DeletedApps
from clarion.access.sql import Apps
from clarion.errors import StoreUnavailable
from tests.factories import NOW, make_app, make_provider_key
from tests.recorded_bus import RecordedHub


class Ended:
    """Takes note of the apps whose connections are ended."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def end(self, app_id: str) -> None:
        self.ids.append(app_id)


async def test_a_node_learns_what_it_deleted_at_once_and_the_rest_by_asking(apps: Apps) -> None:
    here, there = make_app(), make_app()
    for each in (here, there):
        await apps.create(each, make_provider_key(each))
        await apps.delete(each.id, NOW)
    ended = Ended()
    deleted = DeletedApps(apps, ended.end)
    await deleted.add(here.id)
    assert (here.id in deleted, there.id in deleted, ended.ids) == (True, False, [here.id])
    await deleted.poll()
    assert there.id in deleted
    assert set(ended.ids) == {here.id, there.id}


async def test_connections_that_came_meanwhile_are_ended_by_the_next_poll(apps: Apps) -> None:
    app, ended = make_app(), Ended()
    await apps.create(app, make_provider_key(app))
    await apps.delete(app.id, NOW)
    deleted = DeletedApps(apps, ended.end)
    for _ in range(3):
        await deleted.poll()
    assert ended.ids == [app.id] * 3


async def test_a_poll_that_began_before_does_not_bring_an_app_back(apps: Apps) -> None:
    deleted = DeletedApps(apps)
    await deleted.add("gone")
    await deleted.poll()
    assert "gone" in deleted


class BrokenApps:
    """The part of `Apps` that is read, which fails at first."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_read = asyncio.Event()

    async def list_deleted(self) -> tuple[str, ...]:
        self.calls += 1
        if self.calls == 1:
            raise StoreUnavailable
        self.is_read.set()
        return ("gone",)


async def test_the_loop_survives_a_store_that_is_away() -> None:
    apps = BrokenApps()
    deleted = DeletedApps(apps, poll_s=0)  # type: ignore[arg-type]
    loop = asyncio.create_task(deleted.run())
    await asyncio.wait_for(apps.is_read.wait(), 60)
    loop.cancel()
    assert "gone" in deleted


async def test_the_other_nodes_know_it_when_they_are_told(apps: Apps) -> None:
    app, ended, hub = make_app(), asyncio.Event(), RecordedHub()
    await apps.create(app, make_provider_key(app))
    await apps.delete(app.id, NOW)

    async def end(app_id: str) -> None:
        assert app_id == app.id
        ended.set()

    here, there = DeletedApps(apps), DeletedApps(apps, end, poll_s=3600)
    for each in (here, there):
        each.deleted.join(hub.join())
    loop = asyncio.create_task(there.run())
    await asyncio.sleep(0)
    await here.add(app.id)
    await asyncio.sleep(0)
    assert app.id in there
    await asyncio.wait_for(ended.wait(), 30)
    loop.cancel()


class ManyApps:
    """The part of `Apps` that is read: apps that are being removed."""

    def __init__(self) -> None:
        self.ids: tuple[str, ...] = ()

    async def list_deleted(self) -> tuple[str, ...]:
        return self.ids


async def test_the_oldest_are_forgotten_and_none_that_is_still_being_removed() -> None:
    apps = ManyApps()
    deleted = DeletedApps(apps)  # type: ignore[arg-type]
    await deleted.add("oldest")
    apps.ids = tuple(map(str, range(2 * KEPT)))
    await deleted.poll()
    for number in range(KEPT):
        await deleted.add(f"newer {number}")
    assert all(each in deleted for each in apps.ids)
    assert "oldest" not in deleted
    apps.ids = ()
    await deleted.poll()
    await deleted.add("newest")
    assert "newest" in deleted
    assert len(deleted._ids) == KEPT
