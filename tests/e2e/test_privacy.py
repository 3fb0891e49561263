"""Deleting, restoring, erasing and exporting users over real HTTP."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import InboxUser
from tests.e2e.sending import ANY_HOUR, draft, inbox, make_type, send, send_and_wait, wait_until
from tests.e2e.test_isolation import (
    END_LIMIT_S,
    close_code,
    listening,
    register,
)


@pytest.fixture
def app(server: Server) -> Asker:
    return server.app


@pytest.fixture
def order(app: Asker) -> str:
    name = make_type(app)
    template = {"body": "{{ order }} is ready", "variables": ["order"]}
    assert app.ask("PUT", f"/v1/types/{name}/templates/push", template).status == 200
    return name


@pytest.fixture
def ana(server: Server) -> InboxUser:
    user = InboxUser(server)
    create(server.app, user.id)
    return user


def create(app: Asker, user_id: str, **fields: Any) -> None:
    assert app.ask("PUT", f"/v1/users/{user_id}", fields).status == 201
    hours = {"quiet_hours": ANY_HOUR}
    assert app.ask("PATCH", f"/v1/users/{user_id}/preferences", hours).status == 200


def delete(app: Asker, user_id: str, *, hard: bool = False) -> dict[str, Any]:
    answer = app.ask("DELETE", f"/v1/users/{user_id}" + ("?hard=true" if hard else ""))
    assert answer.status == 200, answer.body
    gone: dict[str, Any] = answer.json
    return gone


def restore(app: Asker, user_id: str) -> int:
    return app.post(f"/v1/users/{user_id}/restore").status


# Deleted users.


def test_a_deleted_user_is_not_there_until_they_are_restored(
    app: Asker, ana: InboxUser, order: str
) -> None:
    send_and_wait(app, draft(order, user_id=ana.id))
    path = f"/v1/users/{ana.id}"
    gone = delete(app, ana.id)
    assert gone["id"] == ana.id
    assert gone["restorable_until"] > gone["deleted_at"]
    for read in ("", "/preferences", "/notifications", "/unread-count", "/devices", "/waiting"):
        assert app.get(path + read).status == 404, read
    assert app.get(f"{path}/export").status == 404
    assert app.get(f"{path}/export?deleted=true").json["user"]["id"] == ana.id
    assert app.ask("DELETE", path).status == 404
    assert app.ask("PUT", path, {}).problem["code"] == "user_deleted"
    assert app.post("/v1/events", draft(order, user_id=ana.id)).fields == ["recipient.user_id"]
    assert restore(app, ana.id) == 200
    assert app.get(path).status == 200
    assert len(inbox(app, ana.id)) == 1
    assert restore(app, ana.id) == 404


def test_what_waited_for_a_deleted_user_is_not_sent_after_the_restore(
    app: Asker, ana: InboxUser, order: str
) -> None:
    held = {"quiet_hours": [True] * 24}
    assert app.ask("PATCH", f"/v1/users/{ana.id}/preferences", held).status == 200
    event = draft(order, user_id=ana.id) | {"channels": ["push"]}
    device = register(ana.me)
    assert device
    send_and_wait(app, event)
    waiting = f"/v1/users/{ana.id}/waiting"
    assert len(app.get(waiting).json["items"]) == 1
    delete(app, ana.id)
    wait_until(lambda: find_status(app, ana.id) == "dropped" or None)
    assert restore(app, ana.id) == 200
    assert app.get(waiting).json["items"] == []


def find_status(app: Asker, user_id: str) -> str:
    """Return the status of the one delivery of a deleted user."""
    exported = app.get(f"/v1/users/{user_id}/export?deleted=true").json
    status: str = exported["notifications"][0]["deliveries"][0]["status"]
    return status


def test_the_address_of_a_deleted_user_is_free_and_then_refuses_the_restore(app: Asker) -> None:
    first, second = (uuid.uuid4().hex for _ in range(2))
    email = f"{first}@example.com"
    create(app, first, email=email)
    delete(app, first)
    create(app, second, email=email.upper())
    refused = app.post(f"/v1/users/{first}/restore")
    assert (refused.status, refused.fields) == (409, ["email"])
    delete(app, second, hard=True)
    assert restore(app, first) == 200


def test_a_device_of_a_deleted_user_is_refused(app: Asker, ana: InboxUser) -> None:
    delete(app, ana.id)
    device = {"platform": "clarion", "user_id": ana.id}
    assert app.post("/v1/devices", device).fields == ["user_id"]
    assert ana.me.post("/v1/devices", {"platform": "clarion"}).status == 401


async def check_that_connections_end(app: Asker, user: InboxUser, port: int, *, hard: bool) -> None:
    """Open a stream, a socket and a device; all must end when the user is gone."""
    device = register(user.me)
    async with user.listen() as socket, listening(port, device) as phone:
        await socket.take()
        with user.watch() as stream:
            await asyncio.to_thread(stream.take)
            started = time.monotonic()
            await asyncio.to_thread(delete, app, user.id, hard=hard)
            events = asyncio.to_thread(lambda: list(iter(stream.next, None))[-1].name)
            await asyncio.gather(close_code(socket.connection), close_code(phone), events)
            assert time.monotonic() - started < END_LIMIT_S
    assert user.me.get("/v1/me/unread-count").status == 401


@pytest.mark.parametrize("hard", [False, True])
async def test_open_connections_end(server: Server, ana: InboxUser, *, hard: bool) -> None:
    port = server.installation.gateway_port
    await check_that_connections_end(server.app, ana, port, hard=hard)


@pytest.fixture
def two_nodes(tmp_path: Path, postgres_database: str) -> Iterator[tuple[Server, Server]]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = Installation(tmp_path / "one", database=postgres_database)
    first = one.initialise()
    two = Installation(tmp_path / "two", database=postgres_database, data=str(one.data))
    with one, two:
        yield Server(one, first), Server(two, first)


async def test_they_end_on_other_nodes_too_and_nothing_is_cached_there(
    two_nodes: tuple[Server, Server],
) -> None:
    one, two = two_nodes
    for hard in (False, True):
        user = InboxUser(two)
        create(one.app, user.id)
        assert two.app.get(f"/v1/users/{user.id}/unread-count").status == 200
        port = two.installation.gateway_port
        await check_that_connections_end(one.app, user, port, hard=hard)
        path = f"/v1/users/{user.id}/unread-count"
        wait_until(partial(is_missing, two, path))


def is_missing(node: Server, path: str) -> bool | None:
    return node.app.get(path).status == 404 or None


# Erased users.


def test_an_erasure_is_answered_with_a_receipt_without_personal_data(
    app: Asker, ana: InboxUser, order: str
) -> None:
    send_and_wait(app, draft(order, user_id=ana.id))
    receipt = delete(app, ana.id, hard=True)
    assert receipt["status"] == "erased"
    assert receipt["removed"]["users"] == receipt["removed"]["notifications"] == 1
    assert ana.id not in json.dumps(receipt)
    assert app.get(f"/v1/erasures/{receipt['receipt_id']}").json == receipt
    assert receipt in app.get("/v1/erasures").json["items"]
    assert delete(app, ana.id, hard=True) == receipt  # a repeat, whose first answer was lost
    assert app.ask("DELETE", f"/v1/users/{uuid.uuid4().hex}?hard=true").status == 404
    assert app.get("/v1/erasures/unknown").status == 404


def test_a_user_created_again_is_a_new_one(app: Asker, ana: InboxUser, order: str) -> None:
    send_and_wait(app, draft(order, user_id=ana.id))
    delete(app, ana.id, hard=True)
    assert app.get(f"/v1/users/{ana.id}").status == 404
    create(app, ana.id)
    assert inbox(app, ana.id) == []
    send_and_wait(app, draft(order, user_id=ana.id))
    assert len(inbox(app, ana.id)) == 1


def test_an_event_to_several_goes_on_without_the_erased_user(
    app: Asker, ana: InboxUser, order: str
) -> None:
    bob = f"bob-{uuid.uuid4().hex}"
    create(app, bob)
    actor = {"actor": {"id": ana.id, "name": "Ana Maria"}}
    event_id = send(app, draft(order, user_ids=[ana.id, bob]) | actor)
    wait_until(lambda: inbox(app, bob) or None)
    delete(app, ana.id, hard=True)
    seen = app.get(f"/v1/events/{event_id}").json
    assert seen["recipient"] == {"user_ids": [bob]}
    (item,) = inbox(app, bob)
    assert item["actor"] is None


def test_the_name_of_an_erased_actor_is_removed_from_what_others_have(
    app: Asker, ana: InboxUser
) -> None:
    bob, said = f"bob-{uuid.uuid4().hex}", make_type(app, "{{ actor.name }} said hello")
    create(app, bob)
    actor = {"actor": {"id": ana.id, "name": "Ana Maria"}}
    send_and_wait(app, draft(said, user_id=bob) | actor)
    assert inbox(app, bob)[0]["body"] == "Ana Maria said hello"
    path = f"/v1/users/{bob}/notifications"
    known = {"If-None-Match": app.get(path).headers["etag"]}
    assert app.ask("GET", path, headers=known).status == 304
    delete(app, ana.id, hard=True)
    assert inbox(app, bob)[0]["body"] == "[erased] said hello"
    assert app.ask("GET", path, headers=known).status == 200


# Exports.


def wait_for_export(user: InboxUser) -> Answer:
    """Return the export of a user to whom all is delivered."""

    def look() -> Answer | None:
        answer = user.me.get("/v1/me/export")
        assert answer.status == 200
        return None if answer.json["jobs"] else answer

    return wait_until(look)


def test_a_user_exports_what_is_their_own(app: Asker, ana: InboxUser, order: str) -> None:
    device = register(ana.me)
    send_and_wait(app, draft(order, user_id=ana.id) | {"channels": ["in_app", "push"]})
    own = wait_for_export(ana)
    assert own.headers["content-type"] == "application/json"
    (notification,) = own.json["notifications"]
    assert {each["channel"] for each in notification["deliveries"]} == {"in_app", "push"}
    assert own.json["devices"][0]["id"] == device["device_id"]
    assert own.json["messages"][0]["payload"]["aps"]["alert"]["body"] == "A-7 is ready"
    assert own.json["events"][0]["content"]["data"] == {"order": "A-7"}
    assert device["secret"] not in own.body.decode()
    by_app = app.get(f"/v1/users/{ana.id}/export").json
    assert by_app | {"exported_at": ""} == own.json | {"exported_at": ""}


def test_a_user_has_so_many_exports_in_an_hour(ana: InboxUser) -> None:
    refused = [ana.me.get("/v1/me/export") for _ in range(62)][-1]
    assert (refused.status, refused.problem["code"]) == (429, "too_many_requests")
    assert 0 < int(refused.headers["retry-after"]) <= 3_600


def test_there_is_no_export_of_nobody(app: Asker) -> None:
    """To find that out reads all events of the app: it is counted as any export is."""
    path = f"/v1/users/{uuid.uuid4().hex}/export"
    statuses = [app.get(path).status for _ in range(62)]
    assert (statuses[0], statuses[-1]) == (404, 429)


# Commands.


def test_users_are_deleted_restored_exported_and_erased_by_command(
    server: Server, ana: InboxUser, tmp_path: Path
) -> None:
    run, file = server.installation.run, tmp_path / "export.json"
    url = f"http://127.0.0.1:{server.installation.port}"
    assert run("user", "export", ana.id, str(file), url=url).returncode == 0
    assert json.loads(file.read_text())["user"]["id"] == ana.id
    assert (file.stat().st_mode & 0o777) == 0o600
    deleted = run("user", "delete", ana.id, "--json", url=url)
    assert json.loads(deleted.stdout)["id"] == ana.id
    assert run("user", "export", ana.id, url=url).returncode == 1
    assert run("user", "restore", ana.id, url=url).stdout == f"Restored {ana.id}.\n"
    assert run("user", "erase", ana.id, url=url).returncode == 2  # nobody confirms it
    erased = run("user", "erase", ana.id, "--yes", "--json", url=url)
    assert json.loads(erased.stdout)["removed"]["users"] == 1
    assert server.app.get(f"/v1/users/{ana.id}").status == 404
