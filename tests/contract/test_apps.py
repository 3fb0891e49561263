"""The contract of `Apps`."""

import asyncio

import pytest

from clarion.access.model import OF_INSTALLATION, UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps, Keys
from clarion.errors import Conflict
from tests.factories import NOW, make_app, make_key, make_provider_key, make_user_key
from tests.replacing import replace


@pytest.mark.parametrize("origins", [(), ("https://a.example", "http://b.example:81")])
async def test_an_app_comes_back_as_it_was_made(apps: Apps, origins: tuple[str, ...]) -> None:
    app = make_app(allowed_origins=origins)
    await apps.create(app, make_provider_key(app))
    assert await apps.get(app.id) == app


@pytest.mark.parametrize("algorithm", UserTokenAlgorithm)
async def test_an_app_is_made_with_its_user_key(
    apps: Apps, user_keys: AppKeys[UserKey], algorithm: UserTokenAlgorithm
) -> None:
    app = make_app()
    key = make_user_key(app.id, algorithm=algorithm)
    await apps.create(app, make_provider_key(app), key)
    assert await user_keys.list(app.id) == (key,)


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


async def test_what_is_not_given_stays(apps: Apps) -> None:
    app, other = make_app(allowed_origins=("https://a.example",)), make_app()
    for each in (app, other):
        await apps.create(each, make_provider_key(each))
    renamed = await apps.update(app.id, name="New")
    assert renamed == replace(app, name="New")
    changed = await apps.update(app.id, allowed_origins=())
    assert changed is not None
    assert changed == replace(app, name="New", allowed_origins=())
    limited = await apps.update(app.id, user_per_hour=7, category_per_hour=0)
    assert limited == replace(changed, user_per_hour=7, category_per_hour=0)
    assert await apps.update(app.id, user_per_hour=OF_INSTALLATION, category_per_hour=3) == (
        replace(changed, category_per_hour=3)
    )
    changed = await apps.update(app.id, category_per_hour=OF_INSTALLATION)
    assert await apps.list() == (changed, other)
    assert await apps.update("nobody", name="New") is None


async def test_a_deleted_app_is_not_found_and_its_keys_are_revoked(
    apps: Apps, keys: Keys, user_keys: AppKeys[UserKey]
) -> None:
    app, other = make_app(), make_app()
    for each in (app, other):
        await apps.create(each, make_provider_key(each, key_id=each.id), make_user_key(each.id))
        await keys.create(make_key(each.id, id=f"key-{each.id}"))
    gone = await apps.delete(app.id, NOW + 5)
    assert gone is not None
    assert gone.id == app.id
    assert await apps.get(app.id) is None
    assert await apps.update(app.id, name="New") is None
    assert await apps.list() == (other,)
    assert await apps.list_deleted() == (app.id,)
    for app_id, revoked_at in ((app.id, NOW + 5), (other.id, None)):
        key, provider_key = await keys.find(f"key-{app_id}"), await apps.find_provider_key(app_id)
        (user_key,) = await user_keys.list(app_id)
        assert key is not None
        assert provider_key is not None
        assert {each.revoked_at for each in (key, provider_key, user_key)} == {revoked_at}


async def test_an_app_is_deleted_once(apps: Apps) -> None:
    app = make_app()
    await apps.create(app, make_provider_key(app))
    assert await apps.delete(app.id, NOW) is not None
    assert await apps.delete(app.id, NOW + 1) is None
    assert await apps.delete("nobody", NOW) is None


async def test_the_bundle_id_of_a_deleted_app_is_free_at_once(apps: Apps) -> None:
    app, next_one = make_app(bundle_id="com.example.a"), make_app(bundle_id="com.example.a")
    await apps.create(app, make_provider_key(app))
    await apps.delete(app.id, NOW)
    await apps.create(next_one, make_provider_key(next_one))
    assert await apps.list() == (next_one,)
