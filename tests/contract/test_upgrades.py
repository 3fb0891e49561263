"""A database of an earlier version is brought up to date with the rows that are in it."""

import asyncpg
import pytest

from clarion.catalog.model import Channel
from clarion.events.model import DeliveryStatus, PastDecision, ReasonCode
from clarion.events.sql.deliveries import SqlDeliveries
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
