"""Live clients are disconnected when a key of their app has ended, wherever that was done."""

import asyncio

import pytest

from clarion.access.app_keys import issue_user_key
from clarion.access.ended_keys import EndedKeys
from clarion.access.known_apps import KNOWN_MS, KnownApps
from clarion.access.model import UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps
from clarion.access.vault import Vault
from tests.factories import FixedClock, make_app, make_provider_key
from tests.recorded_bus import RecordedHub


class World:
    """An app with two keys, and what is disconnected."""

    def __init__(
        self, known_apps: KnownApps, user_keys: AppKeys[UserKey], vault: Vault, clock: FixedClock
    ) -> None:
        self.app = make_app()
        self.first, self.second = (
            issue_user_key(
                app_id=self.app.id, algorithm=UserTokenAlgorithm.HS256, vault=vault, now=clock.now()
            ).key
            for _ in range(2)
        )
        self.user_keys = user_keys
        self.clock = clock
        self.live = [self.app.id]
        self.disconnected: list[str] = []
        self.known_apps = known_apps
        self.ended_keys = EndedKeys(
            known_apps=known_apps,
            clock=clock,
            list_apps=lambda: self.live,
            disconnect=self.disconnect,
        )

    async def disconnect(self, app_id: str) -> None:
        self.disconnected.append(app_id)

    async def poll(self) -> list[str]:
        """Return what is disconnected when the cache has expired."""
        self.disconnected.clear()
        self.clock.advance(KNOWN_MS)
        await self.ended_keys.poll()
        return list(self.disconnected)


@pytest.fixture
async def world(
    apps: Apps,
    known_apps: KnownApps,
    user_keys: AppKeys[UserKey],
    vault: Vault,
    clock: FixedClock,
) -> World:
    world = World(known_apps, user_keys, vault, clock)
    await apps.create(world.app, make_provider_key(world.app), world.first)
    assert await user_keys.add(world.second, clock.now())
    assert await world.poll() == []
    return world


async def test_a_key_that_is_revoked_ends_the_clients_of_its_app(world: World) -> None:
    await world.user_keys.revoke(world.app.id, world.first.kid, world.clock.now())
    assert await world.poll() == [world.app.id]
    assert await world.poll() == [world.app.id], "once more, for those on their way"
    assert await world.poll() == []


async def test_a_key_that_expires_ends_them_too(world: World, vault: Vault) -> None:
    new = issue_user_key(
        app_id=world.app.id, algorithm=UserTokenAlgorithm.HS256, vault=vault, now=world.clock.now()
    ).key
    now = world.clock.now()
    assert await world.user_keys.rotate(world.first.kid, new, now=now, ends_at=now + 3 * KNOWN_MS)
    assert await world.poll() == [], "both are live"
    assert await world.poll() == []
    assert await world.poll() == [world.app.id]


async def test_a_new_key_ends_nothing(world: World, vault: Vault) -> None:
    other = issue_user_key(
        app_id=world.app.id, algorithm=UserTokenAlgorithm.HS256, vault=vault, now=world.clock.now()
    )
    assert await world.user_keys.add(other.key, world.clock.now())
    assert await world.poll() == []


async def test_a_change_that_this_node_made_or_that_a_request_saw_is_not_missed(
    world: World,
) -> None:
    await world.user_keys.revoke(world.app.id, world.first.kid, world.clock.now())
    world.known_apps.forget(world.app.id)
    await world.known_apps.find(world.app.id, world.clock.now())
    assert await world.poll() == [world.app.id]


async def test_a_key_that_another_node_ended_is_noticed_when_that_is_told(
    world: World, apps: Apps, vault: Vault
) -> None:
    hub = RecordedHub()
    elsewhere = KnownApps(apps, world.user_keys, vault)
    elsewhere.forget.join(hub.join())
    world.known_apps.forget.join(hub.join())
    await world.poll()
    await world.user_keys.revoke(world.app.id, world.second.kid, world.clock.now())
    await world.ended_keys.poll()
    assert world.disconnected == []  # it is cached
    elsewhere.forget(world.app.id)
    await asyncio.sleep(0)
    await world.ended_keys.poll()
    assert world.disconnected == [world.app.id]


async def test_an_app_that_is_changed_while_it_is_read_is_read_again(world: World) -> None:
    known_apps, apps = world.known_apps, world.known_apps.apps

    class ChangedApps:
        reads = 0

        async def get(self, app_id: str) -> object:
            self.reads += 1
            if self.reads == 1:
                known_apps.forget(app_id)
            return await apps.get(app_id)

    changed = ChangedApps()
    known_apps.apps = changed  # type: ignore[assignment]
    world.clock.advance(KNOWN_MS)
    for _ in range(3):
        assert await known_apps.find(world.app.id, world.clock.now())
    assert changed.reads == 2
