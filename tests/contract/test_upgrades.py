"""A database of an earlier version is brought up to date with the rows that are in it."""

import asyncpg
import jwt
import pytest

from clarion.access.administrators.model import Administrator
from clarion.access.administrators.sql.stores import make_admin_stores
from clarion.access.app_keys import FIRST_KID
from clarion.access.known_apps import KnownApps
from clarion.access.model import ANY_ORIGIN, Role
from clarion.access.sql import SqlApps, open_user_keys
from clarion.access.user_tokens import UserTokens
from clarion.access.vault import AesVault
from clarion.catalog.model import Channel
from clarion.history.model import DeliveryStatus, PastDecision, ReasonCode
from clarion.history.sql.deliveries import SqlDeliveries
from clarion.people.profile import Profile
from clarion.people.segments.sql.segments import SqlSegments
from clarion.people.sql import SqlUsers
from clarion.push.sql.devices import SqlDevices
from clarion.push.sql.topics import SqlBroadcasts, SqlTopics
from clarion.store.engine import Engine
from clarion.store.migrations.plan import apply_to_postgres, apply_to_sqlite, load
from clarion.store.opening import migrate, sqlite_path
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import statement
from tests.conftest import run_sql
from tests.contract.conftest import create_sorting, opened
from tests.factories import NOW
from tests.replacing import replace
from tests.sorting import Sorting, chosen_sorting

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
        devices, topics = SqlDevices(engine), SqlTopics(engine)
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


BEFORE_DIRECTORY = next(each.version for each in load("sqlite") if each.name == "directory") - 1
OLD_USERS = """INSERT INTO users (app_id, id, email, language, timezone, status, tags, attributes,
preferences, created_at, updated_at, version) VALUES
('app', 'ana', 'Ana@example.com', 'en', 'UTC', 'active', '["vip","a ü"]', '{}', '{}', 2, 2, 1),
('app', 'bo', 'ANA@example.com', 'en', 'UTC', 'active', '[]', '{}', '{}', 1, 1, 1),
('app', 'cy', NULL, 'en', 'UTC', 'active', '["vip"]', '{}', '{}', 1, 1, 1),
('app', 'dan', 'dan@exämple.com', 'en', 'UTC', 'active', '[]', '{}', '{}', 1, 1, 1),
('other', 'ana', 'ana@example.com', 'en', 'UTC', 'active', '[]', '{}', '{}', 3, 3, 1)"""
KEYS = statement("keys", "SELECT app_id, id, email_key FROM users ORDER BY app_id, id")
TAGS = statement("tags", "SELECT tag, user_id FROM user_tags WHERE app_id = 'app' ORDER BY 1, 2")


async def test_the_oldest_user_with_an_address_has_its_key(empty_url: str) -> None:
    await migrate_to(BEFORE_DIRECTORY, empty_url, OLD_USERS)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        assert [tuple(row) for row in await engine.fetch(KEYS)] == [
            ("app", "ana", None),
            ("app", "bo", "ana@example.com"),
            ("app", "cy", None),
            ("app", "dan", None),
            ("other", "ana", "ana@example.com"),
        ]
        assert sorted(map(tuple, await engine.fetch(TAGS))) == [
            ("a ü", "ana"),
            ("vip", "ana"),
            ("vip", "cy"),
        ]


async def test_users_who_share_an_address_can_be_changed_and_get_the_key_when_it_is_free(
    empty_url: str,
) -> None:
    await migrate_to(BEFORE_DIRECTORY, empty_url, OLD_USERS)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        users = SqlUsers(engine)
        ana = await users.get("app", "ana")
        assert ana is not None
        assert (ana.profile, ana.metadata, ana.consent) == (Profile(), {}, {})
        assert await users.put(replace(ana, name="Ana")) == (replace(ana, name="Ana"), False)
        for user_id in ("ana", "bo", "dan"):
            await users.patch("app", user_id, lambda user: replace(user, name="Other"))
        assert await read_keys(engine) == {"bo": "ana@example.com", "dan": "dan@exämple.com"}
        await users.patch("app", "bo", lambda user: replace(user, email=None))
        await users.patch("app", "ana", lambda user: replace(user, name="Ana again"))
        assert await read_keys(engine) == {"ana": "ana@example.com", "dan": "dan@exämple.com"}


async def read_keys(engine: Engine) -> dict[str, str]:
    rows = await engine.fetch(KEYS)
    return {user: key for app, user, key in rows if app == "app" and key}


BEFORE_APPS = next(each.version for each in load("sqlite") if each.name == "apps") - 1
OLD_APP = """INSERT INTO apps (id, name, bundle_id, team_id, user_token_algorithm, user_token_key,
created_at) VALUES ('app', 'App', 'com.example.app', 'TEAM000001', 'HS256', {key}, 7)"""


async def test_the_user_secret_of_an_app_becomes_its_first_key(empty_url: str) -> None:
    vault, secret = AesVault(bytes(32)), b"s" * 43
    sealed = vault.seal(secret, "apps/app/user_token_key").hex()
    key = f"X'{sealed}'" if sqlite_path(empty_url) else rf"'\x{sealed}'"
    await migrate_to(BEFORE_APPS, empty_url, OLD_APP.format(key=key))
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        apps, user_keys = SqlApps(engine), open_user_keys(engine)
        app = await apps.get("app")
        assert app is not None
        assert app.allowed_origins == (ANY_ORIGIN,), "browsers are accepted as before"
        (first,) = await user_keys.list("app")
        assert (first.kid, first.created_at, first.revoked_at) == (FIRST_KID, 7, None)
        tokens = UserTokens(KnownApps(apps, user_keys, vault))
        token = jwt.encode({"sub": "ana", "aud": "app", "exp": NOW // 1000}, secret, "HS256")
        assert (await tokens.verify(token, NOW)).user_id == "ana"


BEFORE_SEGMENTS = next(each.version for each in load("sqlite") if each.name == "segments") - 1
USERS_WITH_ATTRIBUTES = r"""INSERT INTO users (app_id, id, language, timezone, status, tags,
attributes, preferences, created_at, updated_at, version) VALUES
('app', 'ana', 'en', 'UTC', 'active', '[]',
 '{"plan":"pro","age":42,"new":true,"a\u0000":"b\u0000","list":[1],"none":null}', '{}', 1, 1, 1),
('app', 'bo', 'en', 'UTC', 'active', '[]', '{"plan":"free","huge":1%s}', '{}', 1, 1, 1),
('other', 'ana', 'en', 'UTC', 'active', '[]', '{"plan":"pro"}', '{}', 1, 1, 1)""" % ("0" * 400)


async def test_attributes_from_before_can_be_looked_up(empty_url: str) -> None:
    await migrate_to(BEFORE_SEGMENTS, empty_url, USERS_WITH_ATTRIBUTES)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        segments = SqlSegments(engine)
        counts = {
            "attributes.plan = 'pro'": 1,
            "attributes.plan in ('pro', 'free')": 2,
            "attributes.age = 42 and attributes.new = true": 1,
            "attributes.huge > 0": 0,
            "attributes.'a\ufffd' = 'b\ufffd'": 1,
        }
        for text, expected in counts.items():
            assert await segments.count("app", text) == expected


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


BEFORE_PUBLISHING = next(each.version for each in load("sqlite") if each.name == "publishing") - 1
OLD_FOLLOWS = """INSERT INTO follows (app_id, topic, user_id, created_at) VALUES
('app', 'news', 'ana', 5), ('app', 'team', 'ana', 7), ('app', 'team', 'bo', 6)"""
OLD_NEWS = """INSERT INTO device_topics (app_id, topic, is_broadcast_channel, storage_policy,
last_sequence, is_open, created_at) VALUES ('app', 'news', 0, -1, 7, 1, 1)"""


async def test_topics_that_were_only_followed_are_topics_of_all(empty_url: str) -> None:
    await migrate_to(BEFORE_PUBLISHING, empty_url, OLD_FOLLOWS, OLD_NEWS)
    await migrate(empty_url)
    async with opened(empty_url) as engine:
        page = await SqlTopics(engine).list("app", broadcast_channels=False, after=None, limit=10)
    found = [(each.topic, each.is_open, each.created_at) for each in page.items]
    assert found == [("news", True, 1), ("team", False, 6)]


BEFORE_COLLATION = next(each.version for each in load("postgres") if each.name == "collation") - 1
OTHER_COLLATIONS = """SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'
AND table_name NOT IN ('migrations', 'attributes_of_users')"""


async def test_texts_are_compared_by_code_points_whatever_the_database_does(
    postgres_url: str, database_name: str
) -> None:
    await create_sorting(postgres_url, database_name)
    url = postgres_url.removesuffix("postgres") + database_name
    await migrate_to(BEFORE_COLLATION, url, USERS_WITH_ATTRIBUTES)
    client = await asyncpg.connect(url)
    try:
        sorts = chosen_sorting() is not Sorting.BYTES
        assert await client.fetchval("SELECT 'ana' < 'B'") is sorts
        assert len(await client.fetch(OTHER_COLLATIONS)) > 100
        await migrate(url)
        assert await client.fetch(OTHER_COLLATIONS) == []
        assert await client.fetchval("SELECT id < 'B' FROM users WHERE app_id = 'app'") is False
        # Its view and its triggers are there again.
        await client.execute("""UPDATE users SET attributes = '{"plan":"new"}' WHERE id = 'bo'""")
        plans = "SELECT user_id FROM user_attributes WHERE term = 'text.plan' AND value = 'new'"
        assert [tuple(row) for row in await client.fetch(plans)] == [("bo",)]
    finally:
        await client.close()
        await run_sql(postgres_url, f"DROP DATABASE {database_name} WITH (FORCE)")
