"""The audit log of a running server: what is recorded, who can read it, and its file."""

import itertools
import json
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Timer
from typing import Any

import apsw
import pytest

from clarion.access.model import Role
from tests.e2e.administrators import Browser, make_administrator, sign_in
from tests.e2e.asking import Asker
from tests.e2e.checklist import read_checklist
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import make_type
from tests.lanes import limit_s

PROVIDER = {
    "kind": "webhook",
    "settings": {"url": "https://hooks.example.com/own"},
    "secrets": {"secret": "whsec_" + "cGxhbnRlZC1zZWNyZXQtb2YtYS13ZWJob29r"},
    "sandbox": True,
}
ANSWERED_BEFORE_KILL = 10
FOUND_WITHIN_S = limit_s(10)


def wait_for(find: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + FOUND_WITHIN_S
    while not (found := find()):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return found


@pytest.fixture
def app(server: Server) -> Asker:
    """A client of an app of its own: nothing else is in its list."""
    return server.with_key(server.make_app()["api_key"])


def entries(asker: Asker, query: str = "") -> list[dict[str, Any]]:
    answer = asker.get(f"/v1/audit?limit=100{query}")
    assert answer.status == 200, answer.body
    items: list[dict[str, Any]] = answer.json["items"]
    return items


def test_a_key_is_created_and_revoked_with_an_entry_each(app: Asker) -> None:
    made = app.post("/v1/keys", {"label": "planted-label", "scopes": ["stats:read"]})
    key_id = made.json["id"]
    revoked = app.delete(f"/v1/keys/{key_id}", headers={"X-Request-Id": "my-request"})
    last, first = entries(app)
    assert (first["action"], first["result"]) == ("key.create", "done")
    assert first["target"] == {"key_id": key_id, "scopes": "stats:read"}
    assert first["request_id"] == made.headers["x-request-id"]
    assert (last["action"], last["target"]) == ("key.revoke", {"key_id": key_id})
    assert (last["request_id"], last["address"]) == ("my-request", "127.0.0.1")
    assert (last["actor"]["kind"], last["actor"]["name"]) == ("api_key", None)
    assert last["sequence"] > first["sequence"]
    assert revoked.status == 200


def test_what_the_caller_may_not_do_is_recorded_but_not_without_end(app: Asker) -> None:
    key = app.post("/v1/keys", {"label": "weak", "scopes": ["stats:read"]}).json
    weak = Asker(app.port, key["api_key"])
    for _ in range(70):
        assert weak.post("/v1/keys", {"label": "x", "scopes": ["*"]}).status == 403
    denied = entries(app, f"&actor_id={key['id']}")
    assert {(each["action"], each["result"], each["reason"]) for each in denied} == {
        ("key.create", "denied", "forbidden")
    }
    assert 60 <= len(denied) < 70


def test_a_wrong_request_changes_nothing_and_has_no_entry(app: Asker) -> None:
    assert app.post("/v1/keys", {"label": "x", "scopes": ["no such"]}).status == 422
    assert app.delete("/v1/keys/nothing").status == 404
    assert app.post("/v1/keys", b"{").status == 400
    assert entries(app) == []


def test_a_repeat_with_an_idempotency_key_is_recorded_as_unchanged(app: Asker) -> None:
    for _ in range(2):
        made = app.post(
            "/v1/keys",
            {"label": "x", "scopes": ["*"]},
            headers={"Idempotency-Key": "one"},
        )
        assert made.status == 201
    assert [each["result"] for each in entries(app)] == ["unchanged", "done"]


def test_users_are_not_named_and_secrets_and_texts_are_not_stored(app: Asker) -> None:
    user_id, mark = f"ana-{uuid.uuid4().hex}@example.com", f"planted-{uuid.uuid4().hex}"
    assert app.ask("PUT", f"/v1/users/{user_id}", {"name": mark}).status == 201
    path = f"/v1/users/{user_id}/preferences"
    assert app.ask("PATCH", path, {"language": "de"}).status == 200
    type_name = make_type(app, mark)
    assert app.ask("PUT", "/v1/providers/webhook/main", PROVIDER).status == 201
    found = entries(app)
    assert {each["action"] for each in found} == {
        "preferences.update",
        "type.replace",
        "template.replace",
        "provider.replace",
    }
    text = json.dumps(found)
    for secret in (user_id, mark, "hooks.example.com", "cGxhbnRlZC1z"):
        assert secret not in text
    assert type_name in text
    (about_ana,) = entries(app, f"&user_id={user_id}")
    assert about_ana["action"] == "preferences.update"
    assert about_ana["subject"].startswith("u_")
    assert "user_id" not in about_ana["target"]


def test_entries_are_filtered_by_action_and_time_and_paged(app: Asker) -> None:
    made = [app.post("/v1/keys", {"label": "x", "scopes": ["*"]}).json for _ in range(3)]
    assert app.delete(f"/v1/keys/{made[-1]['id']}").status == 200
    assert [each["action"] for each in entries(app, "&action=key.revoke")] == ["key.revoke"]
    page = app.get("/v1/audit?limit=2").json
    more = app.get(f"/v1/audit?limit=2&after={page['next']}").json
    assert len({each["id"] for each in (*page["items"], *more["items"])}) == 4
    assert more["next"] is None
    middle = more["items"][0]["created_at"]
    assert all(each["created_at"] >= middle for each in entries(app, f"&since={middle}"))
    assert all(each["created_at"] < middle for each in entries(app, f"&until={middle}"))
    for query in ("&since=yesterday", "&limit=0", "&after=x", "&actor_id=%0a"):
        assert app.get(f"/v1/audit?{query}").status == 422, query


def test_an_app_sees_its_own_entries_only(server: Server, app: Asker) -> None:
    app.post("/v1/keys", {"label": "x", "scopes": ["*"]})
    other = server.with_key(server.make_app()["api_key"])
    assert entries(other) == []
    (mine,) = entries(app)
    assert entries(other, f"&actor_id={mine['actor']['id']}") == []


def test_every_entry_is_in_the_file_of_this_account_alone(server: Server, app: Asker) -> None:
    app.post("/v1/keys", {"label": "x", "scopes": ["*"]})
    (entry,) = entries(app)
    path = server.installation.data / "audit.log"

    def find() -> list[dict[str, Any]]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [each for each in map(json.loads, lines) if each["id"] == entry["id"]]

    (line,) = wait_for(find)
    assert (line["sequence"], line["link"]) == (entry["sequence"], entry["link"])
    assert line["time"] == entry["created_at"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_commands_are_recorded_with_their_account(server: Server) -> None:
    made = server.make_app_by_command()
    done = server.installation.run("key", "create", made["id"], "by command")
    key_id = done.stdout.strip().split("_")[1]
    (entry,) = entries(server.with_key(made["api_key"]), "&action=key.create")
    assert entry["target"] == {"key_id": key_id}
    assert entry["actor"]["kind"] == "command"
    assert entry["actor"]["id"]
    assert server.installation.run("key", "revoke", made["id"], "nothing").returncode == 2
    assert entries(server.with_key(made["api_key"]), "&action=key.revoke") == []


def test_signing_in_is_recorded_with_its_failures(server: Server) -> None:
    account = make_administrator(server.installation)
    browser = Browser(server.installation.port)
    assert browser.sign_in(account.username, "wrong").status == 401
    assert browser.sign_in(account.username).status == 201
    browser.enrol()
    assert browser.post("/v1/admin/session/confirm", {"password": "wrong"}).status == 401
    assert browser.ask("DELETE", "/v1/admin/session").status == 204
    operator = server.make_admin()
    found = entries(operator, f"&actor_id={account.id}")
    assert [(each["action"], each["result"], each["reason"]) for each in reversed(found)] == [
        ("session.start", "done", None),
        ("second_factor.begin", "done", None),
        ("second_factor.add", "done", None),
        ("session.confirm", "denied", "sign_in_failed"),
        ("session.end", "done", None),
    ]
    assert {each["address"] for each in found} == {browser.address}
    failed = entries(operator, "&action=session.start&actor_id=")
    (wrong,) = [each for each in failed if each["target"] == {"administrator_id": account.id}]
    assert (wrong["result"], wrong["actor"]["kind"]) == ("denied", "nobody")


def test_who_signs_in_with_a_name_that_nobody_has_is_not_named(server: Server) -> None:
    browser = Browser(server.installation.port)
    assert browser.sign_in("my-password-typed-into-the-wrong-field").status == 401
    (entry, *_) = entries(server.make_admin(), "&action=session.start&actor_id=")
    assert (entry["target"], entry["address"]) == ({}, browser.address)
    assert "typed" not in json.dumps(entry)


def test_roles_and_keys_of_administrators_are_recorded(server: Server) -> None:
    app_id = server.make_app()["id"]
    browser = sign_in(server.installation)
    name = f"a-{uuid.uuid4().hex}"
    made = browser.post("/v1/admin/administrators", {"username": name, "role": "viewer"}).json
    path = f"/v1/admin/administrators/{made['id']}"
    change = {"role": None, "app_roles": {app_id: "editor"}}
    assert browser.ask("PATCH", path, change).status == 200
    key = browser.post("/v1/admin/keys", {"label": "planted", "role": "viewer"}).json
    own = browser.get("/v1/admin/session").json["administrator_id"]
    found = {each["action"]: each for each in entries(server.make_admin(), f"&actor_id={own}")}
    assert found["administrator.create"]["target"]["role"] == "viewer"
    updated = found["administrator.update"]["target"]
    assert updated == {
        "administrator_id": made["id"],
        "app_roles": f"{app_id}:editor",
        "changed": "app_roles role",
        "role": "none",
    }
    assert found["admin_key.create"]["target"] == {"key_id": key["id"], "role": "viewer"}
    assert name not in json.dumps(found)
    assert "planted" not in json.dumps(found)


def test_an_administrator_acts_for_an_app_under_their_own_name(server: Server) -> None:
    made = server.make_app()
    client = server.make_admin()
    named = {"Clarion-App": made["id"]}
    assert client.post("/v1/keys", {"label": "x", "scopes": ["*"]}, headers=named).status == 201
    (entry,) = entries(server.with_key(made["api_key"]))
    assert (entry["actor"]["kind"], entry["app_id"]) == ("administrator", made["id"])
    # Administrators see each other's names, and the key of an app none.
    assert entry["actor"]["name"] is None
    (shown,) = client.get("/v1/audit", headers=named).json["items"]
    assert shown["actor"].pop("name").startswith("a-")
    assert shown["actor"] == {name: entry["actor"][name] for name in ("kind", "id")}
    assert shown | {"actor": entry["actor"]} == entry


def test_administrators_see_the_apps_of_their_roles(server: Server, app: Asker) -> None:
    app.post("/v1/keys", {"label": "x", "scopes": ["*"]})
    (entry,) = entries(app)
    for role in Role:
        assert entries(server.make_admin(role), f"&actor_id={entry['actor']['id']}") == [entry]
    limited = server.make_admin_of({server.first["app"]["id"]: Role.ADMIN})
    assert limited.get("/v1/audit").status == 403
    other = {"Clarion-App": entry["app_id"]}
    assert limited.get("/v1/audit", headers=other).status == 404
    everything = server.make_admin()
    assert everything.get("/v1/audit?user_id=ana").status == 422
    assert everything.get("/v1/audit?user_id=ana", headers=other).status == 200


def test_users_who_are_exported_deleted_and_erased_are_recorded(app: Asker) -> None:
    for user_id in ("ana", "bo"):
        assert app.ask("PUT", f"/v1/users/{user_id}", {}).status == 201
    assert app.get("/v1/users/ana/export").status == 200
    assert app.delete("/v1/users/ana").status == 200
    assert app.post("/v1/users/ana/restore").status == 200
    assert app.delete("/v1/users/bo?hard=true").status in {200, 202}
    found = [(each["action"], each["result"]) for each in reversed(entries(app))]
    assert found == [
        ("user.export", "unchanged"),
        ("user.delete", "done"),
        ("user.restore", "done"),
        ("user.delete", "done"),
    ]
    (erased,) = entries(app, "&user_id=bo")
    assert erased["target"] == {"erased": "true"}


def test_a_killed_server_leaves_an_entry_for_every_key_and_no_other(tmp_path: Path) -> None:
    """A change and its entry are durable together, at whatever moment the server ends."""
    installation = Installation(tmp_path)
    first = installation.initialise()
    answered = 0
    for number in range(3):
        installation.start()
        asker = Asker(installation.port, first["app"]["api_key"])
        asker.get("/v1/keys")  # this part of the API is built when the server is ready already
        killer = Timer(0.05 * number, kill, (installation,))
        with suppress(OSError, HTTPException):
            for count in itertools.count(1):
                made = asker.post("/v1/keys", {"label": "x", "scopes": ["*"]})
                answered += made.status == 201
                if count == ANSWERED_BEFORE_KILL:
                    killer.start()
        killer.join()
    with installation:
        asker = Asker(installation.port, first["app"]["api_key"])
        keys = set(list_all(asker, "/v1/keys"))
        recorded = list_all(asker, "/v1/audit?action=key.create", "target", "key_id")
        assert sorted(recorded) == sorted(keys - {first["app"]["api_key"].split("_")[1]})
        assert len(recorded) >= answered >= 3 * ANSWERED_BEFORE_KILL
    verify(installation)


def kill(installation: Installation) -> None:
    assert installation.process is not None
    installation.process.kill()
    installation.process.wait()


def list_all(asker: Asker, path: str, *names: str) -> list[str]:
    """Return the ids of all items of a list, or what is at another place in them."""
    found: list[str] = []
    after = ""
    mark = "&" if "?" in path else "?"
    while True:
        page = asker.get(f"{path}{mark}limit=100{after}").json
        for item in page["items"]:
            for name in names or ("id",):
                item = item[name]  # noqa: PLW2901 - a step deeper
            found.append(item)
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of an installation whose server has recorded something and is stopped."""
    installation = Installation(tmp_path_factory.mktemp("original"))
    first = installation.initialise()
    with installation:
        asker = Asker(installation.port, first["app"]["api_key"])
        for _ in range(5):
            asker.post("/v1/keys", {"label": "x", "scopes": ["*"]})
    return installation.data


@pytest.fixture
def stopped(original: Path, tmp_path: Path) -> Installation:
    installation = Installation(tmp_path)
    shutil.copytree(original, installation.data)
    return installation


def run_on(installation: Installation, sql: str) -> None:
    """Change the store as somebody does who can write its file."""
    connection = apsw.Connection(str(installation.data / "clarion.db"))
    connection.execute(sql)
    connection.close()


def verify(installation: Installation, *more: str) -> str:
    done = installation.run("audit", "verify", *more)
    assert done.returncode == (1 if done.stderr else 0), done.stderr
    return done.stderr or done.stdout


def check_by_doctor(installation: Installation) -> str:
    return " ".join(read_checklist(installation.run("doctor"))["audit log"])


def test_an_installation_is_verified(stopped: Installation) -> None:
    assert verify(stopped).startswith("6 entries, all as they were written.\n6:")
    lines = stopped.run("audit", "export").stdout.splitlines()
    assert lines == (stopped.data / "audit.log").read_text().splitlines()
    assert [json.loads(each)["action"] for each in lines] == ["init"] + 5 * ["key.create"]
    assert len(stopped.run("audit", "export", "--after", "4").stdout.splitlines()) == 2
    (last,) = stopped.run("audit", "list", "--limit", "1").stdout.splitlines()
    assert "  6  key.create  done  api_key:" in last
    assert check_by_doctor(stopped) == "ok 6 entries, all as they were written"


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("UPDATE audit_entries SET actor_id = 'x' WHERE sequence = 3", "entry 3 (key.create) was"),
        ("DELETE FROM audit_entries WHERE sequence = 4", "entry 4 is missing"),
        (
            """DELETE FROM audit_entries WHERE sequence > 4; UPDATE audit_chain SET sequence = 4,
            link = (SELECT link FROM audit_entries WHERE sequence = 4)""",
            "has entry 5, but the store ends with 4",
        ),
    ],
)
def test_a_change_of_the_store_is_found(stopped: Installation, sql: str, fault: str) -> None:
    run_on(stopped, sql)
    assert fault in verify(stopped)
    found = check_by_doctor(stopped)
    assert found.startswith("fault")
    assert fault in found


def test_a_change_of_the_file_is_found(stopped: Installation) -> None:
    path = stopped.data / "audit.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert f"line 3 of {path} entry 3 is missing" in verify(stopped)
    path.write_bytes(b"".join(lines).replace(b'"result":"done"', b'"result":"denied"', 1))
    assert f"line 1 of {path} was changed (entry 1)" in verify(stopped)


def test_entries_removed_from_the_store_and_the_file_are_found_with_an_anchor(
    stopped: Installation,
) -> None:
    anchor = verify(stopped).splitlines()[-1]
    run_on(
        stopped,
        """DELETE FROM audit_entries WHERE sequence > 4; UPDATE audit_chain SET sequence = 4,
        link = (SELECT link FROM audit_entries WHERE sequence = 4)""",
    )
    path = stopped.data / "audit.log"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    assert verify(stopped).startswith("4 entries, all as they were written.")
    assert "entry 6 is not the one of the anchor" in verify(stopped, "--anchor", anchor)


def test_the_chain_can_be_verified_after_the_master_key_was_replaced(
    stopped: Installation,
) -> None:
    for _ in range(2):
        assert stopped.run("vault", "rotate").returncode == 0
    assert verify(stopped).startswith("8 entries, all as they were written.")
    actions = [
        json.loads(each)["action"] for each in stopped.run("audit", "export").stdout.splitlines()
    ]
    assert actions[-2:] == ["vault.rotate", "vault.rotate"]


def test_a_file_that_was_cut_off_moved_or_left_behind_is_completed(
    stopped: Installation,
) -> None:
    path = stopped.data / "audit.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with stopped:
        pass
    assert verify(stopped).startswith("6 entries")
    assert path.read_bytes().endswith(b"\n" + whole.splitlines(keepends=True)[-1])
    path.rename(f"{path}.1")
    with stopped:
        Asker(stopped.port, "").get("/health")
    assert not path.exists() or path.read_bytes() == b""
    verify(stopped)
