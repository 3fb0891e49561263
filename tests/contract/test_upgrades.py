"""A database of an earlier version is brought up to date with the rows that are in it."""

from dataclasses import replace

import asyncpg
import pytest

from clarion.access.administrators.model import Administrator
from clarion.access.administrators.sql.stores import make_admin_stores
from clarion.access.model import Role
from clarion.catalog.model import Channel
from clarion.events.model import DeliveryStatus, PastDecision, ReasonCode
from clarion.events.sql.deliveries import SqlDeliveries
from clarion.push.sql.devices import SqlDevices
from clarion.push.sql.topics import SqlBroadcasts, SqlDeviceTopics
from clarion.store.migrations.plan import apply_to_postgres, apply_to_sqlite, load
from clarion.store.opening import migrate, sqlite_path
from clarion.store.sqlite.runner import open_connection
from tests.contract.conftest import opened

BEFORE_NAMES = 4
OLD_DELIVERY = """INSERT INTO deliveries (notification_id, channel, app_id, user_id, status, reason,
rule, story, count, attempt_count, decided_at) VALUES ('n', 'stub', 'app', 'ana', 'failed',
'tries_exhausted', 'nothing_against_it',
'[{"at":1,"status":"held","reason":"always_heard","rule":"person","until":null}]', 1, 5, 7)"""


async def migrate_to(version: int, url: str, *statements: str) -> None:
    """Apply the migrations up to a version, then run statements."""
    path = sqlite_path(url)
    migrations = [
        each for each in load("sqlite" if path else "postgres") if each.version <= version
    ]
    if path:
        connection = open_connection(path)
        apply_to_sqlite(connection, migrations)
        for each in statements:
            connection.execute(each).fetchall()
        connection.close()
        return
    client = await asyncpg.connect(url)
    await apply_to_postgres(client, migrations)
    for each in statements:
        await client.execute(each)
    await client.close()


@pytest.fixture(params=["sqlite_database", "postgres_database"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """The address of a database without tables."""
    return str(request.getfixturevalue(request.param))


async def test_reasons_and_past_decisions_take_their_new_names(empty_url: str) -> None:
    await migrate_to(BEFORE_NAMES, empty_url, OLD_DELIVERY)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        found = await SqlDeliveries(engine).find_many("app", ["n"])
    (delivery,) = found["n"]
    assert (delivery.channel, delivery.status) == (Channel.STUB, DeliveryStatus.FAILED)
    assert (delivery.reason, delivery.rule) == (ReasonCode.ATTEMPTS_EXHAUSTED, "default")
    assert delivery.past_decisions == (
        PastDecision(1, DeliveryStatus.HELD, ReasonCode.MANDATORY, "user"),
    )


BEFORE_OWNERS = next(each.version for each in load("sqlite") if each.name == "owners") - 1
OLD_DEVICES = """INSERT INTO devices (id, app_id, token_hash, secret_hash, platform, user_id, label,
created_at, last_seen_at, invalidated_at, invalidation_reason) VALUES
('d1', 'app', {token}, {secret}, 'ios', 'ana', 'Telefon', 1, 2, NULL, NULL),
('d2', 'app', {other}, {secret}, 'web', NULL, NULL, 3, 4, 5, 'revoked')"""
OLD_TOPICS = """INSERT INTO device_topics (app_id, topic, is_broadcast_channel, storage_policy,
last_sequence, created_at) VALUES ('app', 'news', 0, -1, 7, 1), ('app', 'channel', 1, 1, 7, 1)"""
OLD_SUBSCRIPTION = """INSERT INTO subscriptions (device_id, topic, app_id, cursor, created_at)
VALUES ('d1', 'news', 'app', 5, 1)"""


async def test_devices_subscriptions_and_topics_stay_and_topics_are_closed(empty_url: str) -> None:
    start = "X'" if sqlite_path(empty_url) else r"'\x"
    words = {word: f"{start}{word.encode().hex()}'" for word in ("token", "other", "secret")}
    old_devices = OLD_DEVICES.format(**words)
    await migrate_to(BEFORE_OWNERS, empty_url, old_devices, OLD_TOPICS, OLD_SUBSCRIPTION)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        devices, topics = SqlDevices(engine), SqlDeviceTopics(engine)
        first = await devices.find("app", b"token")
        assert first is not None
        assert (first.id, first.details.user_id, first.details.label) == ("d1", "ana", "Telefon")
        assert await devices.authenticate(b"token", b"secret") == first
        second = await devices.find("app", b"other")
        assert second is not None
        assert (second.invalidated_at, second.is_valid) == (5, False)
        assert await devices.add(replace(first, id="d3")) is False
        assert await devices.add(replace(first, id="d3", app_id="another")) is True
        found = [await topics.get("app", name) for name in ("news", "channel")]
        assert [each and each.is_open for each in found] == [False, True]
        assert len(await SqlBroadcasts(engine).subscriptions("d1")) == 1


BEFORE_ADMINISTRATORS = (
    next(each.version for each in load("sqlite") if each.name == "administrators") - 1
)
OLD_ADMINISTRATOR = """INSERT INTO administrators (id, username, password_hash, role, created_at)
VALUES ('1', 'admin', '$argon2id$…', 'admin', 5), ('2', 'Bob', '$argon2id$…', 'viewer', 6)"""


async def test_administrators_keep_their_password_and_role(empty_url: str) -> None:
    await migrate_to(BEFORE_ADMINISTRATORS, empty_url, OLD_ADMINISTRATOR)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        accounts = make_admin_stores(engine).accounts
        page = await accounts.list(after=None, limit=5)
        assert await accounts.find("bob") is None
    assert page.items == (
        Administrator(
            id="1",
            username="admin",
            password_hash="$argon2id$…",
            role=Role.ADMIN,
            created_at=5,
        ),
        Administrator(
            id="2", username="Bob", password_hash="$argon2id$…", role=Role.VIEWER, created_at=6
        ),
    )
