"""The contract of `Segments`: which users a filter selects, compared with what the filter means."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.people.model import Segment, User, UserStatus
from clarion.people.segments.evaluation import is_member, read_terms
from clarion.people.segments.filters import FLAG, NUMBER, TEXT, Filter
from clarion.people.segments.parser import parse
from clarion.people.segments.sql.segments import SEGMENTS_LIMIT, USUAL, SearchLimits, Segments
from clarion.people.segments.tokens import FilterError
from clarion.people.sql import Users
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import DAY, NOW, make_user, new_app_id
from tests.filters import filters, write
from tests.filters import users as random_users
from tests.replacing import replace

TERMS = statement(
    "terms_of_test",
    "SELECT user_id, term, value, number FROM user_attributes WHERE app_id = :app_id",
)
ERASE = statement("erase_of_test", "DELETE FROM users WHERE app_id = :app_id AND id = :id")
# With these, a dozen users are many: all kinds of plans are made.
FEW = SearchLimits(counted=(1, 2, 4), counted_for_page=4, sorted=3, checks=6, least_users=2)
NONE = SearchLimits(counted=(0,), counted_for_page=0, sorted=0, checks=0, least_users=1)
DELETE = statement(
    "delete_of_test", "UPDATE users SET deleted_at = :at WHERE app_id = :app_id AND id = :id"
)


def make_segment(name: str = "vip", **changes: Any) -> Segment:
    made = Segment(app_id="app", name=name, filter="tag = 'vip'", created_at=NOW, updated_at=NOW)
    return replace(made, **changes)


async def add_all(users: Users, some: Iterable[User]) -> None:
    await asyncio.gather(*map(users.put, some))


async def list_all(segments: Segments, app_id: str, text: str, limit: int = 500) -> list[str]:
    found: list[str] = []
    after: str | None = None
    while True:
        page = await segments.list_users(app_id, text, after=after, limit=limit)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        assert after is None or page.next > after
        after = page.next


async def test_a_segment_is_read_as_stored(segments: Segments) -> None:
    assert await segments.put(make_segment()) == (make_segment(), True)
    assert await segments.get("app", "vip") == make_segment()
    assert await segments.get("app", "other") is None
    assert await segments.get("other", "vip") is None


async def test_put_again_replaces_the_filter_and_keeps_the_creation(segments: Segments) -> None:
    await segments.put(make_segment())
    again = make_segment(filter="tag = 'b'", created_at=NOW + 9, updated_at=NOW + 9)
    expected = replace(again, created_at=NOW)
    assert await segments.put(again) == (expected, False)
    assert await segments.get("app", "vip") == expected


async def test_segments_are_listed_by_name_in_pages(segments: Segments) -> None:
    for name in ("b", "a", "c"):
        await segments.put(make_segment(name))
    await segments.put(make_segment("d", app_id="other"))
    first = await segments.list("app", after=None, limit=2)
    second = await segments.list("app", after=first.next, limit=2)
    names = [[each.name for each in page.items] for page in (first, second)]
    assert (names, second.next) == ([["a", "b"], ["c"]], None)


async def test_a_deleted_segment_is_gone(segments: Segments) -> None:
    await segments.put(make_segment())
    assert not await segments.delete("other", "vip")
    assert await segments.delete("app", "vip")
    assert not await segments.delete("app", "vip")
    assert await segments.get("app", "vip") is None


async def test_an_app_has_so_many_segments_and_can_replace_them(segments: Segments) -> None:
    for n in range(SEGMENTS_LIMIT):
        assert await segments.put(make_segment(f"s{n}")) is not None
    assert await segments.put(make_segment("more")) is None
    assert await segments.get("app", "more") is None
    assert await segments.put(make_segment("s7", filter="tag = 'b'")) is not None
    assert await segments.put(make_segment("more", app_id="other")) is not None


async def test_a_filter_that_is_not_valid_is_refused(segments: Segments) -> None:
    with pytest.raises(FilterError):
        await segments.count("app", "tag")
    with pytest.raises(FilterError):
        await segments.list_users("app", "tag", after=None, limit=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    some=st.lists(st.integers(0, 99), max_size=12, unique=True).flatmap(
        lambda ids: st.tuples(*(random_users(f"u{n:02}") for n in ids))
    ),
    asked=st.lists(filters, min_size=1, max_size=4),
    limit=st.sampled_from([3, 500]),
    limits=st.sampled_from([USUAL, FEW, NONE]),
)
async def test_a_filter_selects_in_sql_whom_it_means(
    users: Users,
    engine: Engine,
    limits: SearchLimits,
    some: tuple[User, ...],
    asked: list[Filter],
    limit: int,
) -> None:
    app_id, segments = new_app_id(), Segments(engine, limits)
    await add_all(users, (replace(user, app_id=app_id) for user in some))
    for each in asked:
        text = write(each)
        expected = sorted(user.id for user in some if is_member(each, user))
        assert await segments.count(app_id, text) == len(expected), text
        assert await list_all(segments, app_id, text, limit) == expected, text
        for user in some[:3]:
            is_found = await segments.has_user(app_id, text, user.id)
            assert is_found is (user.id in expected), text


async def test_users_of_another_app_are_not_found(users: Users, segments: Segments) -> None:
    given = {"tags": ("a",), "language": "de", "attributes": {"n": 1}, "last_seen_at": NOW}
    await users.put(make_user("ana", app_id="other", **given))
    conditions = ("tag = 'a'", "language = 'de'", "attributes.n = 1", "last_seen_at > '2020-01-01'")
    for text in (*conditions, "tag != 'b'", "status = 'active'", " or ".join(conditions)):
        assert await segments.count("app", text) == 0
        assert await list_all(segments, "app", text) == []
        assert await segments.count("other", text) == 1


async def read_stored(engine: Engine, app_id: str) -> dict[tuple[str, str], object]:
    """Return the attributes as they are stored for filters, by user and term."""
    rows = await engine.fetch(TERMS, app_id=app_id)
    is_text = [row[1].startswith(TEXT) for row in rows]
    return {
        (row[0], row[1]): row[2] if text else row[3]
        for row, text in zip(rows, is_text, strict=True)
    }


def terms_of(*some: User) -> dict[tuple[str, str], object]:
    return {
        (user.id, term): value
        for user in some
        for term, values in read_terms(user).items()
        if term.startswith((TEXT, NUMBER, FLAG))
        for value in values
    }


async def test_attributes_follow_every_write_of_a_user(users: Users, engine: Engine) -> None:
    ana = make_user("ana", attributes={"plan": "pro", "age": 7, "is_new": True, "x": None})
    bo = make_user("bo", attributes={"plan": "free"})
    await users.put(ana)
    await users.put(bo)
    assert await read_stored(engine, "app") == terms_of(ana, bo)
    ana = replace(ana, attributes={"plan": 5, "new": "x"})
    await users.put(ana)
    assert await read_stored(engine, "app") == terms_of(ana, bo)
    await users.patch("app", "ana", lambda user: replace(user, attributes={"z": "ü"}))
    ana = replace(ana, attributes={"z": "ü"})
    assert await read_stored(engine, "app") == terms_of(ana, bo)
    await engine.write(Unit("ana", (ERASE.step(app_id="app", id="ana"),), "app"))
    assert await read_stored(engine, "app") == terms_of(bo)


async def test_of_writes_in_one_batch_the_last_one_counts(users: Users, engine: Engine) -> None:
    """The units of a batch run step by step: their attributes must not be mixed."""
    versions = [make_user("ana", attributes={f"a{n}": n, "n": n}) for n in range(50)]
    await add_all(users, versions)
    stored = await users.get("app", "ana")
    assert stored is not None
    assert await read_stored(engine, "app") == terms_of(stored)


async def test_deleted_and_inactive_users_leave_and_return(
    users: Users, segments: Segments, engine: Engine
) -> None:
    await users.put(make_user("ana", tags=("a",), attributes={"n": 1}))
    text = "tag = 'a' and attributes.n = 1"

    async def count_after(change: Any) -> int:
        await change
        assert len(await list_all(segments, "app", text)) == await segments.count("app", text)
        return await segments.count("app", text)

    def write_deletion(at: int | None) -> Any:
        return engine.write(Unit("ana", (DELETE.step(app_id="app", id="ana", at=at),), "app"))

    def set_status(status: UserStatus) -> Any:
        return users.patch("app", "ana", lambda user: replace(user, status=status))

    assert await count_after(set_status(UserStatus.INACTIVE)) == 0
    assert await count_after(set_status(UserStatus.ACTIVE)) == 1
    assert await count_after(write_deletion(NOW)) == 0
    assert await count_after(write_deletion(None)) == 1


async def test_what_no_filter_can_compare_is_stored_all_the_same(users: Users) -> None:
    attributes = {
        "long": "x" * 5_000,
        "n" * 5_000: "x",
        "huge": 10**400,
        "zero\0": "a\0b",
        "escaped": "a\\u0000b",
        "list": [1, {"a": "\0"}],
        "least": -(1 << 63),
        "small": 5e-324,
    }
    ana = make_user("ana", attributes=attributes)
    assert await users.put(ana) == (ana, True)


@pytest.mark.parametrize("value", ["x" * 256, "x" * 257, "x" * 300, "🚀" * 256, "x" * 256 + "a"])
async def test_long_texts_are_compared_exactly(
    users: Users, segments: Segments, value: str
) -> None:
    ana = make_user("ana", attributes={"a": value})
    await users.put(ana)
    asked = ["x" * 256, "x" * 255 + "y", "🚀" * 256, "x"]
    for text in (f"attributes.a {sign} '{each}'" for each in asked for sign in ("=", "<", ">")):
        assert bool(await segments.count("app", text)) is is_member(parse(text), ana)


async def test_hostile_texts_are_values_and_nothing_else(users: Users, segments: Segments) -> None:
    hostile = ["'; DROP TABLE users; --", "$1", ":p0", "%", "\\", "{}", "1) OR (1=1"]
    await users.put(make_user("ana", attributes={"a": "b"}))
    for text in hostile:
        quoted = text.replace("'", "''")
        assert await segments.count("app", f"attributes.'{quoted}' = '{quoted}'") == 0
        await users.put(make_user("bo", attributes={text: text}, tags=(text,)))
        assert await segments.count("app", f"attributes.'{quoted}' = '{quoted}'") == 1
        assert await segments.count("app", f"tag = '{quoted}'") == 1
    assert await segments.count("app", "status = 'active'") == 2


async def test_the_largest_filter_is_counted_and_listed(users: Users, segments: Segments) -> None:
    await add_all(
        users, (make_user(f"u{n}", attributes={"n": n}, tags=(f"t{n}",)) for n in range(40))
    )
    listed = ", ".join(f"'t{n}'" for n in range(100))
    anywhere = " or ".join([f"tag in ({listed})"] * 2 + ["attributes.n >= 0"] * 2)
    assert await segments.count("app", anywhere) == 40
    many = " or ".join(f"attributes.a{n} > {n}" for n in range(31)) + " or attributes.n > 9"
    assert await segments.count("app", many) == 30
    assert len(await list_all(segments, "app", many)) == 30
    nested = "not (" * 16 + "tag = 't1'" + ")" * 16
    assert await segments.count("app", nested) == 1
    for text in (anywhere, f"tag in ({listed})"):
        assert len(await list_all(segments, "app", text)) == 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status = 'inactive'", []),
        ("language = 'de' and language = 'en'", []),
        ("status = 'active'", ["ana", "bo"]),
        ("tag = 'a' or status = 'active'", ["ana", "bo"]),
    ],
)
async def test_filters_that_decide_nothing(
    users: Users, segments: Segments, text: str, expected: list[str]
) -> None:
    await add_all(users, [make_user("ana", language="de"), make_user("bo", tags=("a",))])
    assert await segments.count("app", text) == len(expected)
    assert await list_all(segments, "app", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "tag in ('a', 'b')",
        "tag in ('a', 'b', 'x') and language = 'en'",
        "tag = 'a' or attributes.n = 1",
        "attributes.n in (1, 2) or tag in ('a', 'b') or attributes.n > 0",
    ],
)
@pytest.mark.parametrize("limits", [USUAL, FEW, NONE])
async def test_who_fulfils_several_conditions_is_found_once(
    users: Users, engine: Engine, text: str, limits: SearchLimits
) -> None:
    await add_all(
        users, (make_user(f"u{n}", tags=("a", "b"), attributes={"n": 1}) for n in range(9))
    )
    segments = Segments(engine, limits)
    assert await segments.count("app", text) == 9
    assert await list_all(segments, "app", text) == [f"u{n}" for n in range(9)]


async def test_pages_go_on_while_users_change(users: Users, segments: Segments) -> None:
    """Each user is listed once, whatever happens to the value by which they are found."""
    some = [make_user(f"u{n:03}", attributes={"n": n}) for n in range(90)]
    await add_all(users, some)
    found: list[str] = []
    after: str | None = None
    while True:
        page = await segments.list_users("app", "attributes.n >= 0", after=after, limit=20)
        found += page.items
        if page.next is None:
            break
        after = page.next
        moved = [replace(user, attributes={"n": 1000 - n}) for n, user in enumerate(some)]
        await add_all(users, moved)
    assert found == [user.id for user in some]


async def test_last_activity_is_a_time(users: Users, segments: Segments) -> None:
    for n in range(3):
        await users.put(make_user(f"u{n}", last_seen_at=NOW + n * DAY))
    await users.put(make_user("never"))
    assert await list_all(segments, "app", "last_seen_at >= '2026-01-02'") == ["u1", "u2"]
    assert await list_all(segments, "app", "not last_seen_at >= '2026-01-02'") == ["never", "u0"]
