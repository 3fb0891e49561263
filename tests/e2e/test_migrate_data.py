"""From SQLite to PostgreSQL: what was made over the API is there, and goes on to work."""

import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from websockets.asyncio.client import connect

from tests.conftest import run_sql
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser
from tests.e2e.provider import push
from tests.e2e.sending import draft, inbox, send_and_wait, wait_until
from tests.e2e.test_access_matrix import World
from tests.e2e.test_commands import faults_of

RECEIVE_LIMIT_S = 100


def make_device(server: Server) -> dict[str, Any]:
    """Register a device, and push a message that waits for it."""
    device: dict[str, Any] = server.app.post("/v1/devices", {"platform": "clarion"}).json
    assert push(server, device["token"], "waits for you").status == 200
    return device


def is_erased(world: World) -> bool | None:
    """Whether what runs in the background has changed what it changes."""
    path = f"/v1/erasures/{world.ids['receipt_id']}"
    return world.server.app.get(path).json["status"] != "running" or None


async def receive(installation: Installation, device: dict[str, Any]) -> dict[str, Any]:
    """Connect a device, and return the first message that it gets."""
    url = f"ws://127.0.0.1:{installation.gateway_port}/v1/gateway"
    async with connect(url, compression=None) as socket:
        hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
        await socket.send(json.dumps(hello))
        async with asyncio.timeout(RECEIVE_LIMIT_S):
            async for frame in socket:
                message: dict[str, Any] = json.loads(frame)
                if message["type"] == "notification":
                    return message
    raise AssertionError("the connection was closed")


async def test_everything_works_on_postgresql_afterwards(
    tmp_path: Path, postgres_database: str
) -> None:
    """All that can be read over the API is the same; keys, devices and users go on."""
    before = Installation(tmp_path)
    first = before.initialise()
    with before:
        world = World(Server(before, first))
        device = make_device(world.server)
        wait_until(lambda: is_erased(world))
        looked = world.look()
        (fault,) = faults_of(before.run("migrate-data", to=postgres_database), 1)
        assert f"uses {before.data / 'clarion.db'}. Stop it" in fault
    done = before.run("migrate-data", to=postgres_database)
    assert done.returncode == 0, done.stderr
    assert "Counts and checksums of all tables are equal." in done.stdout
    after = Installation(tmp_path, database=postgres_database)
    with after:
        world.server = Server(after, first)
        assert "set_up" not in after.events()
        assert world.look() == looked
        check_message(await receive(after, device))
        check_that_it_works(world)
    assert after.run("audit", "verify").returncode == 0
    assert '"migrate-data"' in after.run("audit", "export").stdout
    check_files(before, after)
    check_that_nothing_begins_anew(before)
    check_way_back(before, first)


def check_message(message: dict[str, Any]) -> None:
    assert message["payload"]["aps"]["alert"] == "waits for you"


def check_that_it_works(world: World) -> None:
    """Users, events, pushes, segments and idempotent requests."""
    app, user = world.server.app, InboxUser(world.server, world.ana.id)
    count = len(inbox(app, user.id))
    send_and_wait(app, draft(world.ids["type_name"], user_id=user.id))
    assert len(inbox(app, user.id)) == count + 1
    assert user.me.get("/v1/me/notifications").status == 200
    assert push(world.server, make_device(world.server)["token"]).status == 200
    assert app.post(f"/v1/segments/{world.ids['name']}/count").json == {"count": 0}
    assert app.ask("PATCH", f"/v1/users/{user.id}", {"tags": [world.mark]}).status == 200
    assert app.post(f"/v1/segments/{world.ids['name']}/count").json == {"count": 1}


def check_files(before: Installation, after: Installation) -> None:
    assert not (before.data / "clarion.db").exists()
    assert (before.data / "clarion.db.migrated").exists()
    doctor = after.run("doctor")
    assert "has keys of this database" in doctor.stdout
    assert "encrypted secrets" in doctor.stdout
    database = before.data / "clarion.db"
    (fault,) = faults_of(after.run("migrate-data"), 1)
    assert fault == (
        f"{database} was copied already, and is now {database}.migrated. Start the server with "
        f"--database, or copy again with --from {database}.migrated."
    )
    (fault,) = faults_of(after.run("migrate-data", "--from", f"{database}.migrated"), 1)
    assert fault.startswith("The PostgreSQL database is not empty")
    assert Path(f"{database}.migrated").exists()


def check_that_nothing_begins_anew(before: Installation) -> None:
    """Without --database, each command names the file and what can be done; nothing is created."""
    database, kept = before.data / "clarion.db", list_kept(before)
    for words in (["serve"], ["init"], ["migrate"], ["app", "list"], ["backup", "copy"]):
        first, *ways = faults_of(before.run(*words))
        assert first == (
            f"{database} was copied to PostgreSQL by `clarion migrate-data`, and is now "
            f"{database}.migrated."
        )
        assert [way.partition(",")[0] for way in ways if way.startswith("To ")] == [
            "To use PostgreSQL",
            "To go back to SQLite",
            "To begin with an empty database",
        ]
    doctor = before.run("doctor")
    assert doctor.returncode == 1
    assert f"{database} was copied to PostgreSQL" in doctor.stdout
    assert list_kept(before) == kept


def list_kept(installation: Installation) -> dict[str, bytes]:
    """Return what is in the data directory, but for the files that only lock it."""
    files = [each for each in installation.data.rglob("*") if each.is_file()]
    return {str(each): each.read_bytes() for each in files if each.suffix != ".lock"}


def check_way_back(before: Installation, first: dict[str, Any]) -> None:
    """As the message says: what was stored before the copy is served again."""
    (before.data / "clarion.db.migrated").rename(before.data / "clarion.db")
    for log in before.data.glob("audit.log*"):
        log.rename(log.with_name(f"after-{log.name}"))
    with before:
        assert "set_up" not in before.events()
        assert Server(before, first).app.get("/v1/caller").status == 200
        assert "audit_chain_broken" not in before.events()
    assert before.run("audit", "verify").returncode == 0


async def test_a_copy_that_is_not_finished_is_not_served(
    tmp_path: Path, postgres_database: str
) -> None:
    source = Installation(tmp_path)
    source.initialise()
    assert source.run("migrate", database=postgres_database).returncode == 0
    mark = "INSERT INTO copied_tables VALUES ('', 'other/1', NULL, 0, '', 0)"
    await run_sql(postgres_database, mark)
    target = Installation(tmp_path, database=postgres_database)
    (fault,) = faults_of(target.run("serve"))
    assert "`clarion migrate-data` has not finished copying into PostgreSQL" in fault
    (fault,) = faults_of(source.run("migrate-data", to=postgres_database), 1)
    assert "The PostgreSQL database is not empty: copied_tables has rows." in fault
    assert (source.data / "clarion.db").exists()


@pytest.mark.parametrize("url", ["", "mysql://root@127.0.0.1/clarion"])
def test_a_target_that_is_no_postgresql_is_refused(tmp_path: Path, url: str) -> None:
    installation = Installation(tmp_path)
    installation.initialise()
    more = {"to": url} if url else {}
    (fault,) = faults_of(installation.run("migrate-data", **more))
    assert fault == "--to: must be like postgresql://user@host:5432/clarion"


async def test_secrets_that_could_not_be_read_are_not_copied(
    tmp_path: Path, postgres_database: str
) -> None:
    installation = Installation(tmp_path)
    installation.initialise()
    (installation.data / "master.key").write_bytes(bytes(32))
    (fault,) = faults_of(installation.run("migrate-data", to=postgres_database))
    assert "Copy master.key from another node" in fault
    connection = await asyncpg.connect(postgres_database)
    assert await connection.fetchval("SELECT to_regclass('apps')") is None
    await connection.close()
