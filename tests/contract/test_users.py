"""The `Users` port."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from clarion.catalog.model import Category, Channel
from clarion.errors import ClarionError, EmailTaken, UserDeleted
from clarion.pages import Page
from clarion.people.model import Consent, Preferences, User, UserStatus
from clarion.people.port import Users
from clarion.people.profile import BillingAddress, Intelligence, Profile
from clarion.people.sql import SqlUsers
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import NOW, make_user

PREFERENCES = Preferences(
    quiet_hours=(True,) * 23 + (False,),
    categories={Category.SOCIAL: False},
    types={"POST_LIKE": {Channel.PUSH: False, Channel.SMS: True}},
)
FULL = make_user(
    "ana",
    name="Ana Ünï 🚀",
    email="ana@example.com",
    phone="+4915112345678",
    language="pt-BR",
    timezone="America/Sao_Paulo",
    status=UserStatus.INACTIVE,
    tags=("vip", "beta, ü"),
    attributes={"plan": "pro", "nested": {"list": [1, None, 2.5, "\x00"]}},
    metadata={"crm": {"id": 7, "notes": ["a", None]}},
    consent={"newsletter": Consent(granted=True, at=NOW, source="form", version="2026-01")},
    profile=Profile(
        billing_address=BillingAddress(line1="Hauptstraße 1", city="Köln", country="DE"),
        intelligence=Intelligence(credits=2.5, billing_history=("in_1", "in_2")),
    ),
    preferences=PREFERENCES,
    last_login_at=NOW - 5,
)


async def pages(
    read: Callable[..., Awaitable[Page[str]]], app_id: str, *more: str, limit: int
) -> list[tuple[str, ...]]:
    """Return all pages of a list of ids."""
    found, after = [], None
    while True:
        page = await read(app_id, *more, after=after, limit=limit)
        found.append(page.items)
        if page.next is None:
            return found
        after = page.next


async def test_a_user_is_read_as_stored(users: Users) -> None:
    for user in (FULL, make_user("bo")):
        assert await users.put(user) == (user, True)
        assert await users.get("app", user.id) == user


async def test_an_unknown_user_is_none(users: Users) -> None:
    await users.put(make_user("ana"))
    assert await users.get("app", "bo") is None
    assert await users.get("other", "ana") is None


async def test_put_again_replaces_all_but_preferences_and_creation(users: Users) -> None:
    await users.put(FULL)
    again = make_user("ana", name="Other", created_at=NOW + 9, updated_at=NOW + 9)
    kept = {name: getattr(FULL, name) for name in ("created_at", "preferences", "last_login_at")}
    expected = replace(again, **kept)
    assert await users.put(again) == (expected, False)
    assert await users.get("app", "ana") == expected


async def test_the_same_id_in_another_app_is_another_user(users: Users) -> None:
    await users.put(make_user("ana", name="one"))
    await users.put(make_user("ana", app_id="other", name="two"))
    first, second = await users.get("app", "ana"), await users.get("other", "ana")
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("one", "two")


async def test_many_users_are_found_at_once(users: Users) -> None:
    known = [FULL, *(make_user(f"u{n}") for n in range(300))]
    for user in (*known, make_user("u1", app_id="other")):
        await users.put(user)
    wanted = [user.id for user in known[:250]]
    found = await users.find_many("app", [*wanted, "nobody", 'a"b', "ü", wanted[0]])
    assert found == {user.id: user for user in known[:250]}


@pytest.mark.parametrize("ids", [[], ["nobody"], ["'", "]", "\\", "{}"]])
async def test_unknown_ids_are_not_found(users: Users, ids: list[str]) -> None:
    await users.put(make_user("ana"))
    assert await users.find_many("app", ids) == {}


async def test_patch_replaces_what_the_edit_changes(users: Users) -> None:
    await users.put(make_user("ana", name="Ana"))
    changed = await users.patch(
        "app", "ana", lambda user: replace(user, preferences=PREFERENCES, updated_at=NOW + 1)
    )
    assert changed == make_user("ana", name="Ana", preferences=PREFERENCES, updated_at=NOW + 1)
    assert await users.get("app", "ana") == changed


async def test_patch_of_an_unknown_user_is_none(users: Users) -> None:
    await users.put(make_user("ana"))
    assert await users.patch("app", "bo", lambda user: user) is None
    assert await users.patch("other", "ana", lambda user: user) is None


async def test_an_edit_that_fails_changes_nothing(users: Users) -> None:
    await users.put(FULL)

    def fail(_user: User) -> User:
        raise ClarionError

    with pytest.raises(ClarionError):
        await users.patch("app", "ana", fail)
    assert await users.get("app", "ana") == FULL


async def test_patches_at_the_same_moment_lose_nothing(users: Users, other_node: Engine) -> None:
    await users.put(make_user("ana"))
    nodes = (users, SqlUsers(other_node))

    async def add_tag(number: int) -> None:
        def edit(user: User) -> User:
            return replace(user, tags=(*user.tags, f"t{number}"))

        assert await nodes[number % 2].patch("app", "ana", edit)

    await asyncio.gather(*(add_tag(number) for number in range(6)))
    ana = await users.get("app", "ana")
    assert ana is not None
    assert sorted(ana.tags) == [f"t{number}" for number in range(6)]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_hold_every_active_id_once_in_order(users: Users, limit: int) -> None:
    for name in ("c", "a", "e", "b", "d"):
        status = UserStatus.INACTIVE if name == "b" else UserStatus.ACTIVE
        await users.put(make_user(name, status=status))
    await users.put(make_user("aa", app_id="other"))
    found = await pages(users.list_ids, "app", limit=limit)
    assert [name for page in found for name in page] == ["a", "c", "d", "e"]
    assert all(len(page) == limit for page in found[:-1])


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_followers_are_the_active_users_who_follow(users: Users, limit: int) -> None:
    for name in ("c", "a", "b", "d"):
        status = UserStatus.INACTIVE if name == "b" else UserStatus.ACTIVE
        await users.put(make_user(name, status=status))
        if name != "d":
            assert await users.follow("app", name, "news", NOW)
    await users.follow("app", "d", "newsletter", NOW)
    found = await pages(users.followers, "app", "news", limit=limit)
    assert [name for page in found for name in page] == ["a", "c"]
    assert await users.followers("other", "news", after=None, limit=9) == Page((), None)


async def test_following_again_changes_nothing(users: Users) -> None:
    await users.put(make_user("ana"))
    for _ in range(2):
        assert await users.follow("app", "ana", "news", NOW)
    assert await users.followed("app", "ana", after=None, limit=9) == Page(("news",), None)


async def test_an_unknown_user_cannot_follow(users: Users) -> None:
    await users.put(make_user("ana"))
    assert not await users.follow("app", "bo", "news", NOW)
    assert not await users.follow("other", "ana", "news", NOW)
    assert await users.followers("app", "news", after=None, limit=9) == Page((), None)


async def test_followed_topics_come_in_pages(users: Users) -> None:
    await users.put(make_user("ana"))
    for topic in ("c", "a", "b"):
        await users.follow("app", "ana", topic, NOW)
    assert await users.followed("app", "ana", after=None, limit=2) == Page(("a", "b"), "b")
    assert await users.followed("app", "ana", after="b", limit=2) == Page(("c",), None)


async def test_unfollowing_works_once(users: Users) -> None:
    await users.put(make_user("ana"))
    await users.follow("app", "ana", "news", NOW)
    assert not await users.unfollow("other", "ana", "news")
    assert await users.unfollow("app", "ana", "news")
    assert not await users.unfollow("app", "ana", "news")
    assert await users.followed("app", "ana", after=None, limit=9) == Page((), None)


async def test_an_edit_cannot_change_who_the_user_is(users: Users) -> None:
    await users.put(FULL)
    changed = await users.patch(
        "app", "ana", lambda user: replace(user, id="bo", app_id="other", created_at=1, name="Bo")
    )
    assert changed == replace(FULL, name="Bo")
    assert await users.get("app", "ana") == changed


async def test_inactive_users_of_all_apps_are_listed_by_their_last_change(users: Users) -> None:
    for app_id, user_id, moment in (
        ("b", "ana", 3),
        ("a", "bo", 2),
        ("a", "ana", 2),
        ("a", "cy", 1),
        ("a", "long ago", 0),
    ):
        inactive = make_user(
            user_id, app_id=app_id, status=UserStatus.INACTIVE, updated_at=NOW + moment
        )
        await users.put(inactive)
    await users.put(make_user("dan", app_id="a", updated_at=NOW + 2))
    expected = [
        (NOW + 1, "a", "cy"),
        (NOW + 2, "a", "ana"),
        (NOW + 2, "a", "bo"),
        (NOW + 3, "b", "ana"),
    ]
    after = (NOW + 1, "", "")
    found: list[tuple[int, str, str]] = []
    while page := await users.list_inactive(after, 2):
        assert len(page) <= 2
        found += page
        after = page[-1]
    assert found == expected


async def test_a_user_who_is_active_again_is_not_listed(users: Users) -> None:
    for status in (UserStatus.INACTIVE, UserStatus.ACTIVE):
        await users.put(make_user("ana", status=status))
    assert await users.list_inactive((0, "", ""), 9) == ()


async def test_an_address_belongs_to_one_user_of_an_app_in_capitals_or_not(users: Users) -> None:
    await users.put(make_user("ana", email="Ana@Exämple.com"))
    await users.put(make_user("ana", app_id="other", email="ana@exämple.com"))
    with pytest.raises(EmailTaken):
        await users.put(make_user("bo", email="ANA@EXÄMPLE.COM"))
    await users.put(make_user("bo", email="bo@example.com"))
    with pytest.raises(EmailTaken):
        await users.patch("app", "bo", lambda user: replace(user, email="aNA@exämple.com"))
    bo = await users.get("app", "bo")
    assert bo is not None
    assert bo.email == "bo@example.com"


async def test_an_address_that_was_given_up_is_free(users: Users) -> None:
    await users.put(make_user("ana", email="ana@example.com"))
    await users.put(make_user("ana", email="ana@example.org"))
    _, is_new = await users.put(make_user("bo", email="ana@example.com"))
    assert is_new


DELETE = statement("delete", "UPDATE users SET deleted_at = :now WHERE id = :id")


async def test_a_deleted_user_is_nowhere_and_gives_up_the_address(
    users: Users, engine: Engine
) -> None:
    await users.put(make_user("ana", email="ana@example.com"))
    await users.follow("app", "ana", "news", NOW)
    await engine.write(Unit("ana", (DELETE.step(now=NOW, id="ana"),)))
    assert await users.get("app", "ana") is None
    assert await users.find_many("app", ["ana"]) == {}
    assert await users.patch("app", "ana", lambda user: user) is None
    assert await users.list_ids("app", after=None, limit=9) == Page((), None)
    assert await users.followers("app", "news", after=None, limit=9) == Page((), None)
    assert not await users.follow("app", "ana", "more", NOW)
    with pytest.raises(UserDeleted):
        await users.put(make_user("ana"))
    await users.put(make_user("bo", email="ana@example.com"))
