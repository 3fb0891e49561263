"""The contract of `Users`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clarion.catalog.model import Category, Channel
from clarion.errors import ClarionError, Conflict, EmailTaken, InvalidFields, UserDeleted
from clarion.pages import Page
from clarion.people.model import Consent, Preferences, StoredUser, User, UserFilter, UserStatus
from clarion.people.profile import BillingAddress, Intelligence, Profile
from clarion.people.sql import FOLLOWS_LIMIT, Users
from clarion.push.sql.topics import Topics
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import NOW, make_user
from tests.replacing import replace

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
        intelligence=Intelligence(credits=2.5, billing_history=["in_1", "in_2"]),
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
    nodes = (users, Users(other_node))

    async def add_tag(number: int) -> None:
        def edit(user: User) -> User:
            return replace(user, tags=(*user.tags, f"t{number}"))

        assert await nodes[number % 2].patch("app", "ana", edit)

    await asyncio.gather(*(add_tag(number) for number in range(6)))
    ana = await users.get("app", "ana")
    assert ana is not None
    assert sorted(ana.tags) == [f"t{number}" for number in range(6)]


async def test_many_patches_on_one_node_wait_for_each_other(users: Users) -> None:
    """Each was tried five times beside all the others, and most were refused."""
    await users.put(make_user("ana"))

    def add_tag(number: int) -> Callable[[User], User]:
        return lambda user: replace(user, tags=(*user.tags, f"t{number}"))

    await asyncio.gather(*(users.patch("app", "ana", add_tag(number)) for number in range(40)))
    ana = await users.get("app", "ana")
    assert ana is not None
    assert len(ana.tags) == 40


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


async def test_a_user_follows_a_limited_number_of_topics(users: Users, engine: Engine) -> None:
    await users.put(make_user("ana"))
    await users.put(make_user("bo"))
    names = [f"t{n:04}" for n in range(FOLLOWS_LIMIT)]
    await asyncio.gather(*(users.follow("app", "ana", name, NOW) for name in names))
    assert await users.follow("app", "ana", names[0], NOW)
    with pytest.raises(Conflict, match="1,000 topics"):
        await users.follow("app", "ana", "one-more", NOW)
    assert await Topics(engine).get("app", "one-more") is None
    assert await users.follow("app", "bo", "one-more", NOW)
    await users.unfollow("app", "ana", names[0])
    assert await users.follow("app", "ana", "one-more", NOW)


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


async def everyone(users: Users, limit: int = 2, **conditions: Any) -> list[str]:
    """Return the ids of all pages of a list."""
    found: list[str] = []
    after = None
    while True:
        page = await users.list("app", UserFilter(**conditions), after=after, limit=limit)
        assert len(page.items) <= limit
        found += [user.id for user in page.items]
        if page.next is None:
            return found
        after = page.next


async def test_each_filter_has_its_pages(users: Users, engine: Engine) -> None:
    for n in range(9):
        user = make_user(
            f"u{n}",
            name=("Ana", "ANABEL", "Änne", "Bo")[n // 2] if n < 8 else "Anaïs",
            email=f"U{n}@Example.com",
            status=UserStatus.INACTIVE if n % 3 == 0 else UserStatus.ACTIVE,
            language="de" if n % 2 else "en",
            tags=("vip",) if n % 4 == 0 else (),
            created_at=NOW - n,
            last_seen_at=None if n == 5 else NOW + 10 * (n // 2),
        )
        await users.put(user)
    await users.put(make_user("x", app_id="other", tags=("vip",), email="u1@example.com"))
    await engine.write(Unit("u8", (DELETE.step(now=NOW, id="u8"),)))
    assert await everyone(users) == [f"u{n}" for n in range(8)]
    assert await everyone(users, email="u1@EXAMPLE.com") == ["u1"]
    assert await everyone(users, email="u8@example.com") == []
    assert await everyone(users, status=UserStatus.INACTIVE) == ["u0", "u3", "u6"]
    assert await everyone(users, ids=("u3", "u1", "u8", "none")) == ["u1", "u3"]
    assert await everyone(users, ids=("u3", "u1"), status=UserStatus.INACTIVE) == ["u3"]
    assert await everyone(users, ids=("u3", "u1"), email="u2@example.com") == []
    assert await everyone(users, name="aN") == ["u0", "u1", "u2", "u3"]
    assert await everyone(users, name="anab") == ["u2", "u3"]
    assert await everyone(users, name="Än") == ["u4", "u5"]
    assert await everyone(users, name="an_") == await everyone(users, name="an%") == []
    assert await everyone(users, name="an", status=UserStatus.INACTIVE) == ["u0", "u3"]
    assert await everyone(users, name="an", tag="vip") == ["u0"]
    assert await everyone(users, language="de") == ["u1", "u3", "u5", "u7"]
    assert await everyone(users, tag="vip") == ["u0", "u4"]
    assert await everyone(users, created_after=NOW - 3) == ["u3", "u2", "u1", "u0"]
    assert await everyone(users, created_after=NOW - 3, created_before=NOW - 1) == ["u3", "u2"]
    assert await everyone(users, last_seen_before=NOW + 20) == ["u0", "u1", "u2", "u3"]
    assert await everyone(users, last_seen_after=NOW + 20) == ["u4", "u6", "u7"]


async def test_several_conditions_hold_together(users: Users) -> None:
    for n in range(250):
        await users.put(make_user(f"u{n:03}", language="de", tags=("vip",) if n > 240 else ()))
    both: dict[str, Any] = {"language": "de", "created_after": NOW}
    assert len(await everyone(users, limit=100, **both)) == 250
    assert await everyone(users, limit=2, tag="vip", status=UserStatus.ACTIVE, **both) == [
        f"u{n}" for n in range(241, 250)
    ]
    page = await users.list(
        "app", UserFilter(language="de", status=UserStatus.INACTIVE), after=None, limit=2
    )
    assert page == Page((), "u199")


async def test_a_tag_is_found_as_long_as_the_user_has_it(users: Users) -> None:
    await users.put(make_user("ana", tags=("vip", "beta")))
    await users.put(make_user("ana", tags=("beta", "new")))
    assert [await everyone(users, tag=tag) for tag in ("vip", "beta", "new")] == [
        [],
        ["ana"],
        ["ana"],
    ]
    await users.patch("app", "ana", lambda user: replace(user, tags=()))
    assert await everyone(users, tag="new") == []


async def test_tags_written_at_the_same_moment_agree_with_the_user(
    users: Users, other_node: Engine
) -> None:
    nodes = (users, Users(other_node))
    for _ in range(5):
        await asyncio.gather(
            *(nodes[n % 2].put(make_user("ana", tags=(f"t{n}", "all"))) for n in range(8))
        )
        ana = await users.get("app", "ana")
        assert ana is not None
        tagged = [f"t{n}" for n in range(8) if await everyone(users, tag=f"t{n}")]
        assert (*tagged, "all") == ana.tags


def renamed(name: str) -> Callable[[User | None], User]:
    return lambda user: replace(user or make_user("?", app_id="?"), name=name, tags=("new",))


async def test_many_users_are_created_and_changed_at_once(users: Users) -> None:
    await users.put(make_user("u1", email="one@example.com", created_at=NOW - 5))
    edits = {f"u{n}": renamed(f"name {n}") for n in range(700)}
    outcomes = await users.edit_many("app", edits)
    assert outcomes.keys() == edits.keys()
    for user_id, each in outcomes.items():
        assert isinstance(each, StoredUser)
        assert await users.get("app", user_id) == each.user
        assert (each.before is not None) == (user_id == "u1")
    first = await users.get("app", "u1")
    assert first is not None
    assert (first.email, first.created_at, first.name) == ("one@example.com", NOW - 5, "name 1")
    assert len(await everyone(users, limit=100, tag="new")) == 700


async def test_one_that_fails_does_not_spoil_the_others(users: Users, engine: Engine) -> None:
    await users.put(make_user("holder", email="Taken@example.com"))
    await users.put(make_user("gone"))
    await engine.write(Unit("gone", (DELETE.step(now=NOW, id="gone"),)))

    def with_email(email: str) -> Callable[[User | None], User]:
        return lambda user: replace(user or make_user(), email=email)

    def fail(_user: User | None) -> User:
        raise InvalidFields

    outcomes = await users.edit_many(
        "app",
        {
            "good": renamed("Good"),
            "taken": with_email("taken@example.com"),
            "first": with_email("new@example.com"),
            "second": with_email("NEW@example.com"),
            "gone": renamed("Gone"),
            "faulty": fail,
        },
    )
    kinds = {user_id: type(each) for user_id, each in outcomes.items()}
    assert kinds == {
        "good": StoredUser,
        "taken": EmailTaken,
        "first": StoredUser,
        "second": EmailTaken,
        "gone": UserDeleted,
        "faulty": InvalidFields,
    }
    assert await everyone(users, limit=9) == ["first", "good", "holder"]


async def test_edits_of_many_at_the_same_moment_lose_nothing(
    users: Users, other_node: Engine
) -> None:
    nodes = (users, Users(other_node))

    def tag(number: int) -> Callable[[User | None], User]:
        def edit(user: User | None) -> User:
            known = user or make_user()
            return replace(known, tags=(*known.tags, f"t{number}"))

        return edit

    ids = [f"u{n}" for n in range(30)]
    rounds = (nodes[n % 2].edit_many("app", dict.fromkeys(ids, tag(n))) for n in range(4))
    await asyncio.gather(*rounds)
    for user_id in ids:
        user = await users.get("app", user_id)
        assert user is not None
        assert sorted(user.tags) == ["t0", "t1", "t2", "t3"]


async def test_last_seen_is_written_once_a_minute(users: Users) -> None:
    await users.put(make_user("ana"))
    for moment, stored in (
        (NOW, NOW),
        (NOW + 59_999, NOW),
        (NOW + 60_000, NOW + 60_000),
        (NOW - 1, NOW - 1),  # the clock was set back
    ):
        await users.touch([("app", "ana"), ("app", "nobody"), ("other", "ana")], moment)
        ana = await users.get("app", "ana")
        assert ana is not None
        assert (ana.last_seen_at, ana.updated_at) == (stored, NOW)


async def test_a_change_keeps_when_the_user_was_last_seen(users: Users) -> None:
    await users.put(make_user("ana"))
    await users.touch([("app", "ana")], NOW)
    await users.put(make_user("ana", name="Ana"))
    changed = await users.patch("app", "ana", lambda user: replace(user, last_seen_at=None))
    assert changed is not None
    assert (changed.name, changed.last_seen_at) == ("Ana", NOW)
