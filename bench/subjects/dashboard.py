"""The pages of the dashboard, with few and with very many notifications stored."""

import asyncio
import time
from collections.abc import Iterator

from bench.deployment import Deployment, on_postgres, on_sqlite
from bench.installation import Installation, user_of
from bench.load import Request
from bench.table import Row
from clarion.access.administrators.model import (
    Administrator,
    AdminSession,
    SetupLink,
    hash_token,
    new_token,
)
from clarion.access.administrators.sql.stores import make_admin_stores
from clarion.access.model import Role
from clarion.clock import SystemClock, first_id_of
from clarion.http.visitors import SESSION_COOKIE
from clarion.store.opening import sqlite_path
from clarion.store.statement import Unit, statement

SMALL = 10_000
LARGE = 1_000_000
USERS = 1_000
AT_A_TIME = 5_000
FAILED_EVERY = 1_000
# Some hours ago: what is too old would be pruned while it is measured.
START_MS = SystemClock().now() - 3 * 3_600_000
SESSION_MS = 3_600_000
# A page in the time of an administrator who never waits; a page may take this long.
PER_SECOND = 10.0
MARK_MS = 100
SETTLE_S = 120
IDLE_PART = 0.1  # of a core
ADD = statement(
    "add_bench_listed_notification",
    """INSERT INTO notifications (app_id, user_id, id, event_id, type, category, priority, title,
    body, content, count, is_shown, sequence, read_at, created_at, ended_deliveries)
    VALUES (:app_id, :user_id, :id, :id, 'POST_COMMENT', 'social', 1, 'New comment',
    'Ana commented on your post', '{}', 1, 1, :sequence, NULL, :created_at,
    '[["in_app","delivered","allowed","default"]]')""",
)
ADD_DELIVERY = statement(
    "add_bench_delivery",
    """INSERT INTO deliveries (notification_id, channel, app_id, user_id, status, reason, rule,
    past_decisions, count, attempt_count, sent_at, delivered_at, decided_at)
    VALUES (:id, :channel, :app_id, :user_id, :status, 'allowed', 'default', '[]', 1, 1, :at, :at,
    :at)""",
)
ANALYZE = (
    statement("analyze_bench_notifications", "ANALYZE notifications"),
    statement("analyze_bench_deliveries", "ANALYZE deliveries"),
)
PAGES = {
    "overview": "/overview",
    "notifications": "/notifications",
    "failed notifications": "/notifications?delivery_status=failed",
    "notifications of a user": "/notifications?q={user}",
    "a timeline": "/notifications/{notification}",
    "a person": "/people/{user}",
    "their inbox": "/people/{user}/inbox",
}


def measure(seconds: float) -> Iterator[Row]:
    """Measure on both engines."""
    for deploy in (on_sqlite, on_postgres):
        with deploy(users=USERS) as deployment:
            yield from _measure(deployment, seconds)


def _measure(deployment: Deployment, seconds: float) -> Iterator[Row]:
    cookie = asyncio.run(_sign_in(deployment.installation))
    before = 0
    for stored in (SMALL, LARGE):
        asyncio.run(_fill(deployment.installation, before, stored))
        before = stored
        _settle(deployment)
        for what, path in PAGES.items():
            yield _look(deployment, seconds, what, path, stored, cookie)


def _settle(deployment: Deployment) -> None:
    """Wait until the server has counted what was stored behind its back."""
    used = deployment.server.usage().cpu_s
    for _ in range(SETTLE_S):
        time.sleep(1)
        used, before = deployment.server.usage().cpu_s, used
        if used - before < IDLE_PART:
            return


def _look(
    deployment: Deployment, seconds: float, what: str, path: str, stored: int, cookie: str
) -> Row:
    number = stored // 2
    filled = path.format(user=_user_of(number), notification=_id_of(number))
    request = Request(
        method="GET",
        path=f"/admin/apps/{deployment.installation.app_id}{filled}",
        headers=(("cookie", cookie),),
        body=b"",
    )
    result, cpu_s = deployment.measure(request, seconds, rate=PER_SECOND)
    name = f"page of {what}, {stored:,} stored, {deployment.name}"
    return Row.of(name, result, cpu_s=cpu_s, note=f"mark {MARK_MS} ms")


async def _sign_in(installation: Installation) -> str:
    """Store an administrator with a session, and return its cookie."""
    clock = SystemClock()
    now, secret = clock.now(), new_token()
    account = Administrator(id=clock.new_id(), username="bench", role=Role.ADMIN, created_at=now)
    link = SetupLink(id=account.id, token_hash=hash_token(secret), created_at=0, expires_at=0)
    session = AdminSession(
        id=clock.new_id(),
        administrator_id=account.id,
        secret_hash=hash_token(secret),
        created_at=now,
        last_seen_at=now,
        expires_at=now + SESSION_MS,
        mfa_at=now,
        confirmed_at=now,
        address="127.0.0.1",
        user_agent="",
    )
    async with installation.opened() as engine:
        stores = make_admin_stores(engine)
        await stores.accounts.create(account, link)
        await stores.sessions.start(session)
    return f"{SESSION_COOKIE}={secret}"


async def _fill(installation: Installation, first: int, last: int) -> None:
    """Insert notifications number `first` to `last`; some have a delivery that failed."""
    async with installation.opened() as engine:
        for start in range(first, last, AT_A_TIME):
            numbers = range(start, min(start + AT_A_TIME, last))
            rows = [_bind(installation.app_id, number) for number in numbers]
            deliveries = [
                each for n in numbers for each in _bind_deliveries(installation.app_id, n)
            ]
            steps = (ADD.many(rows), ADD_DELIVERY.many(deliveries))
            await engine.write(Unit("", steps))
        if not sqlite_path(installation.settings.database_url):
            # As the server does by itself.
            await engine.write(Unit("", tuple(each.step() for each in ANALYZE)))


def _bind(app_id: str, number: int) -> tuple[object, ...]:
    owner = {"app_id": app_id, "user_id": _user_of(number), "id": _id_of(number)}
    return ADD.bind(**owner, sequence=number + 1, created_at=START_MS + number)


def _bind_deliveries(app_id: str, number: int) -> Iterator[tuple[object, ...]]:
    owner = {"app_id": app_id, "user_id": _user_of(number), "id": _id_of(number)}
    moment = START_MS + number
    if number % FAILED_EVERY == 0:
        yield ADD_DELIVERY.bind(**owner, channel="email", status="failed", at=moment)


def _user_of(number: int) -> str:
    return user_of(number % USERS)


def _id_of(number: int) -> str:
    return f"{first_id_of(START_MS + number)}-7000-8000-000000000000"
