"""The user directory, small and very large: a user by id and by e-mail, and pages of the list."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import Installation
from bench.load import Request
from bench.table import Row
from clarion.people.model import User
from clarion.people.tables import USERS
from clarion.store.opening import sqlite_path
from clarion.store.statement import Unit, statement

SMALL = 10_000
LARGE = 1_000_000
# What a look-up in the large directory may cost, beside one in the small directory.
MARK = 1.3
ROUNDS = 3
AT_A_TIME = 5_000
TAGGED_EVERY = 100
START_MS = 1_700_000_000_000
# Has no factor in common with either size: all users are asked for, in no order.
STRIDE = 7_919
ADD = statement(
    "add_bench_user",
    f"""INSERT INTO users ({USERS.columns}, version, email_key)
    VALUES ({USERS.parameters}, 1, :email)""",  # noqa: S608 - names of columns
)
TAG = statement(
    "tag_bench_user",
    "INSERT INTO user_tags (app_id, tag, user_id) VALUES (:app_id, 'vip', :user_id)",
)
ANALYZE = statement("analyze_bench_users", "ANALYZE users")
PATHS = {
    "user by id": "/v1/users/{user}",
    "user by e-mail": "/v1/users?email={user}@Example.com",
    "page of 20 users": "/v1/users?after={user}",
    "page of 20 users with a tag": "/v1/users?tag=vip&after={user}",
    "page of 20 users by last seen": "/v1/users?last_seen_after={moment}",
}


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    for deploy in (on_sqlite, on_postgres):
        with deploy() as small, deploy() as large:
            asyncio.run(_fill(small.installation, SMALL))
            asyncio.run(_fill(large.installation, LARGE))
            for what in PATHS:
                yield from _compare(small, large, seconds, what)


def _compare(small: Deployment, large: Deployment, seconds: float, what: str) -> Iterator[Row]:
    """Measure both by turns, so that whatever else the machine does slows both down."""
    rounds = [
        (_look(small, seconds / ROUNDS, what, SMALL), _look(large, seconds / ROUNDS, what, LARGE))
        for _ in range(ROUNDS)
    ]
    before, after = (min(rows, key=_cost_of) for rows in zip(*rounds, strict=True))
    yield before
    ratio = f"CPU {_cost_of(after) / _cost_of(before):.2f}× that of the small one (mark {MARK}×)"
    yield replace(after, note=", ".join(filter(None, [ratio, after.note])))


def _cost_of(row: Row) -> float:
    return row.cpu_s or math.inf


def _look(deployment: Deployment, seconds: float, what: str, stored: int) -> Row:
    source = partial(_ask, deployment.installation.api_headers(), PATHS[what], stored)
    result, cpu_s = deployment.measure(source, seconds)
    return Row.of(f"{what}, {stored:,} stored, {deployment.name}", result, cpu_s=cpu_s)


def _ask(headers: tuple[tuple[str, str], ...], path: str, stored: int, number: int) -> Request:
    chosen = number * STRIDE % stored
    # Also in the small directory a full page of users was seen after this: they span 10 s.
    filled = path.format(user=_id_of(chosen), moment=f"2023-11-14T22:13:{20 + chosen % 9}Z")
    return Request(method="GET", path=filled, headers=headers, body=b"")


async def _fill(installation: Installation, count: int) -> None:
    """Insert users number 0 to `count`."""
    app_id = installation.app_id
    async with installation.opened() as engine:
        for start in range(0, count, AT_A_TIME):
            numbers = range(start, min(start + AT_A_TIME, count))
            rows = [ADD.bind(**USERS.values(_user(app_id, n))) for n in numbers]
            tagged = [
                TAG.bind(app_id=app_id, user_id=_id_of(n)) for n in numbers if not n % TAGGED_EVERY
            ]
            await engine.write(Unit("", (ADD.many(rows), TAG.many(tagged))))
        if not sqlite_path(installation.settings.database_url):
            await engine.write(Unit("", (ANALYZE.step(),)))  # as the server does by itself


def _user(app_id: str, number: int) -> User:
    user_id, moment = _id_of(number), START_MS + number
    return User(
        app_id=app_id,
        id=user_id,
        name=f"User {number}",
        email=f"{user_id}@example.com",
        tags=() if number % TAGGED_EVERY else ("vip",),
        created_at=moment,
        updated_at=moment,
        last_seen_at=moment,
    )


def _id_of(number: int) -> str:
    return f"user-{number:07}"
