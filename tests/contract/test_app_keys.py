"""The `AppKeys` port, for user keys and for provider keys."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from clarion.access.model import LIVE_KEYS_LIMIT, ProviderKey, UserKey
from clarion.access.sql import AppKeys, Apps, open_provider_keys, open_user_keys
from clarion.errors import Conflict
from clarion.store.engine import Engine
from tests.factories import DAY, NOW, make_app, make_provider_key, make_user_key
from tests.replacing import replace

AnyKey = UserKey | ProviderKey


@dataclass(frozen=True)
class World:
    """Two apps, and the keys of one kind."""

    keys: AppKeys[Any]
    make: Callable[..., AnyKey]
    app_id: str
    other_id: str

    def name(self, key: AnyKey) -> str:
        return key.kid if isinstance(key, UserKey) else key.key_id

    async def names(self) -> list[str]:
        return [self.name(key) for key in await self.keys.list(self.app_id)]


@pytest.fixture(params=["user keys", "provider keys"])
async def world(request: pytest.FixtureRequest, engine: Engine, apps: Apps) -> World:
    app, other = make_app(), make_app()
    first = make_provider_key(app)
    for each in (app, other):
        await apps.create(each, replace(first, app_id=each.id, key_id=each.id[-10:]))
    if request.param == "user keys":
        return World(
            open_user_keys(engine), lambda **more: make_user_key(app.id, **more), app.id, other.id
        )
    keys = open_provider_keys(engine)
    for each in (app, other):  # so that both kinds begin with none
        await keys.revoke(each.id, each.id[-10:], 1)
    return World(keys, lambda **more: make_provider_key(app, **more), app.id, other.id)


async def live(world: World) -> list[str]:
    return [world.name(each) for each in await world.keys.list(world.app_id) if each.is_live(NOW)]


async def test_a_key_comes_back_as_it_was_added(world: World) -> None:
    key = world.make(expires_at=NOW + DAY)
    assert await world.keys.add(key, NOW)
    assert key in await world.keys.list(world.app_id)
    assert key not in await world.keys.list(world.other_id)


async def test_live_keys_are_listed_first_newest_first(world: World) -> None:
    made = [world.make(created_at=NOW + n) for n in range(3)]
    for key in made:
        assert await world.keys.add(key, NOW)
    await world.keys.revoke(world.app_id, world.name(made[2]), NOW)
    assert (await world.names())[:3] == [world.name(made[n]) for n in (1, 0, 2)]


async def test_a_taken_name_is_a_conflict_and_changes_nothing(world: World) -> None:
    key = world.make()
    assert await world.keys.add(key, NOW)
    with pytest.raises(Conflict):
        await world.keys.add(replace(key, created_at=NOW + 1), NOW)
    assert key in await world.keys.list(world.app_id)


async def test_an_app_has_so_many_live_keys_at_most(world: World) -> None:
    made = [world.make() for _ in range(LIVE_KEYS_LIMIT)]
    for key in made:
        assert await world.keys.add(key, NOW)
    one_more = world.make()
    assert not await world.keys.add(one_more, NOW)
    assert not await world.keys.rotate(world.name(made[0]), one_more, now=NOW, ends_at=NOW + 1)
    await world.keys.revoke(world.app_id, world.name(made[0]), NOW)
    assert await world.keys.add(one_more, NOW)


async def test_keys_added_at_the_same_time_do_not_exceed_the_limit(world: World) -> None:
    made = [world.make() for _ in range(LIVE_KEYS_LIMIT + 5)]
    done = await asyncio.gather(*(world.keys.add(key, NOW) for key in made))
    assert len(await live(world)) == done.count(True) == LIVE_KEYS_LIMIT


async def test_an_app_that_is_not_there_gets_no_key(world: World, apps: Apps) -> None:
    key = replace(world.make(), app_id="nobody")
    assert not await world.keys.add(key, NOW)
    await apps.delete(world.app_id, NOW)
    assert not await world.keys.add(world.make(), NOW)
    assert await live(world) == []


@pytest.mark.parametrize(
    ("expires_at", "ends_at"), [(None, NOW + 10), (NOW + 5, NOW + 5), (NOW + 50, NOW + 10)]
)
async def test_rotating_adds_a_key_and_shortens_the_life_of_the_old_one(
    world: World, expires_at: int | None, ends_at: int
) -> None:
    old, new = world.make(expires_at=expires_at), world.make()
    assert await world.keys.add(old, NOW)
    assert await world.keys.rotate(world.name(old), new, now=NOW, ends_at=NOW + 10)
    found = {world.name(each): each for each in await world.keys.list(world.app_id)}
    assert found[world.name(old)] == replace(old, expires_at=ends_at)
    assert found[world.name(new)] == new


async def test_a_key_that_has_ended_is_not_rotated(world: World) -> None:
    revoked, expired = world.make(), world.make(expires_at=NOW)
    for key in (revoked, expired):
        assert await world.keys.add(key, NOW - 1)
    await world.keys.revoke(world.app_id, world.name(revoked), NOW)
    for name in (world.name(revoked), world.name(expired), "nobody"):
        assert not await world.keys.rotate(name, world.make(), now=NOW, ends_at=NOW + 10)
    assert await live(world) == []


async def test_the_key_of_another_app_is_neither_rotated_nor_revoked(world: World) -> None:
    key = world.make()
    assert await world.keys.add(key, NOW)
    foreign = replace(world.make(), app_id=world.other_id)
    assert not await world.keys.rotate(world.name(key), foreign, now=NOW, ends_at=NOW)
    assert await world.keys.revoke(world.other_id, world.name(key), NOW) is None
    assert key in await world.keys.list(world.app_id)


async def test_revoking_again_changes_nothing(world: World) -> None:
    key = world.make()
    assert await world.keys.add(key, NOW)
    first = await world.keys.revoke(world.app_id, world.name(key), NOW)
    assert first == replace(key, revoked_at=NOW)
    assert await world.keys.revoke(world.app_id, world.name(key), NOW + 1) == first


async def test_keys_that_ended_long_ago_are_removed_when_one_is_added(world: World) -> None:
    revoked, expired, new = world.make(), world.make(expires_at=NOW), world.make()
    for key in (revoked, expired):
        assert await world.keys.add(key, NOW - 1)
    await world.keys.revoke(world.app_id, world.name(revoked), NOW)
    later = NOW + 31 * DAY
    assert await world.keys.add(new, later)
    assert await world.names() == [world.name(new)]


async def test_of_two_rotations_at_once_the_old_key_has_one_end(world: World) -> None:
    old = world.make()
    assert await world.keys.add(old, NOW)
    await asyncio.gather(
        *(
            world.keys.rotate(world.name(old), world.make(), now=NOW, ends_at=NOW + n)
            for n in (20, 10)
        )
    )
    (found,) = [each for each in await world.keys.list(world.app_id) if each.expires_at]
    assert (world.name(found), found.expires_at) == (world.name(old), NOW + 10)
