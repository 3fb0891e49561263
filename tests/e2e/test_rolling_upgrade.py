"""A running server keeps a later release from removing what it uses, and goes on beside it."""

from collections.abc import Sequence
from pathlib import Path

import asyncpg

from clarion.store.migrations.plan import Migration, MigrationStep, apply_to_postgres, load
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import draft, inbox, make_type, make_user, send_and_wait
from tests.e2e.test_commands import faults_of

# As a later release would have them.
ADDED = Migration(9001, "note", "ALTER TABLE users ADD COLUMN note TEXT NOT NULL DEFAULT ''")
REMOVED = Migration(9002, "no_name", "ALTER TABLE users DROP COLUMN name", MigrationStep.AFTER)
LATER = [*load("postgres"), ADDED, REMOVED]


async def migrate(url: str, postponed: list[str]) -> list[str]:
    def note(migration: Migration, nodes: Sequence[str]) -> None:
        assert nodes
        postponed.append(migration.title)

    connection = await asyncpg.connect(url)
    try:
        return await apply_to_postgres(connection, LATER, on_postponed=note)
    finally:
        await connection.close()


async def test_a_server_goes_on_while_a_later_release_is_started(
    tmp_path: Path, postgres_database: str
) -> None:
    installation = Installation(tmp_path, database=postgres_database)
    first = installation.initialise()
    postponed: list[str] = []
    with installation:
        app = Server(installation, first).app
        type_, user = make_type(app), make_user(app, name="Ana")
        send_and_wait(app, draft(type_, user_id=user))
        assert await migrate(postgres_database, postponed) == [ADDED.title]
        assert postponed == [REMOVED.title]
        send_and_wait(app, draft(type_, user_id=user))
        assert len(inbox(app, user)) == 2
        assert app.get(f"/v1/users/{user}").json["name"] == "Ana"
    with installation:  # it may also be started again
        assert await migrate(postgres_database, postponed) == []
    assert postponed == [REMOVED.title] * 2
    assert await migrate(postgres_database, postponed) == [REMOVED.title]
    (fault,) = faults_of(installation.run("serve"))
    assert "is at migration 9002, but this release of Clarion only knows up to" in fault
