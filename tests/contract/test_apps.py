"""The `Apps` port."""

import asyncio
from dataclasses import replace

import pytest

from clarion.access.model import UserTokenAlgorithm
from clarion.access.port import Apps
from clarion.errors import Conflict
from tests.factories import make_app, make_provider_key


@pytest.mark.parametrize("algorithm", UserTokenAlgorithm)
async def test_an_app_comes_back_as_it_was_made(apps: Apps, algorithm: UserTokenAlgorithm) -> None:
    app = make_app(user_token_algorithm=algorithm)
    await apps.create(app, make_provider_key(app))
    assert await apps.get(app.id) == app


async def test_an_unknown_app_is_none(apps: Apps) -> None:
    assert await apps.get("nobody") is None


@pytest.mark.parametrize("revoked_at", [None, 7])
async def test_a_provider_key_comes_back_as_made_whatever_its_state(
    apps: Apps, revoked_at: int | None
) -> None:
    app = make_app()
    key = make_provider_key(app, revoked_at=revoked_at)
    await apps.create(app, key)
    assert await apps.find_provider_key(key.key_id) == key


async def test_an_unknown_provider_key_is_none(apps: Apps) -> None:
    assert await apps.find_provider_key("NOBODY0000") is None


async def test_a_taken_bundle_id_is_a_conflict(apps: Apps) -> None:
    first, second = make_app(), make_app()
    await apps.create(first, make_provider_key(first))
    with pytest.raises(Conflict, match=r"^An app with this bundle id already exists\.$"):
        await apps.create(replace(second, bundle_id=first.bundle_id), make_provider_key(second))
    assert await apps.list() == (first,)


async def test_a_taken_key_id_is_a_conflict_and_adds_no_app(apps: Apps) -> None:
    first, second = make_app(), make_app()
    taken = make_provider_key(first)
    await apps.create(first, taken)
    with pytest.raises(Conflict):
        await apps.create(second, replace(taken, app_id=second.id))
    assert await apps.get(second.id) is None


async def test_after_a_conflict_the_same_app_can_be_made_with_another_key(apps: Apps) -> None:
    first, second = make_app(), make_app()
    taken = make_provider_key(first)
    await apps.create(first, taken)
    with pytest.raises(Conflict):
        await apps.create(second, replace(taken, app_id=second.id))
    await apps.create(second, make_provider_key(second))
    assert await apps.get(second.id) == second


async def test_of_two_apps_at_once_with_one_bundle_id_one_is_made(apps: Apps) -> None:
    both = [make_app(bundle_id="com.example.same") for _ in range(2)]
    outcomes = await asyncio.gather(
        *(apps.create(app, make_provider_key(app)) for app in both), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes if outcome] == [Conflict]
    assert len(await apps.list()) == 1


async def test_the_list_of_nothing_is_empty(apps: Apps) -> None:
    assert await apps.list() == ()


async def test_apps_are_listed_oldest_first(apps: Apps) -> None:
    made = [make_app(created_at=moment) for moment in (1, 2, 3)]
    for app in (made[1], made[2], made[0]):
        await apps.create(app, make_provider_key(app))
    assert await apps.list() == tuple(made)


async def test_at_most_a_thousand_apps_are_listed(apps: Apps) -> None:
    made = [make_app() for _ in range(1_001)]
    await asyncio.gather(*(apps.create(app, make_provider_key(app)) for app in made))
    assert await apps.list() == tuple(made[:1_000])
