"""`clarion vault`: the master key of a real installation is replaced, and nothing is lost."""

import stat
import time
from pathlib import Path
from typing import Any

import apsw
import jwt
import pytest

from tests.e2e.asking import Asker
from tests.e2e.checklist import read_checklist
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import make_user


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.fixture
def first(installation: Installation) -> dict[str, Any]:
    return installation.initialise()


def sign(first: dict[str, Any], user_id: str) -> str:
    claims = {"sub": user_id, "aud": first["app"]["id"], "exp": int(time.time()) + 600}
    return jwt.encode(claims, first["app"]["user_secret"], "HS256")


def make_key(app: Asker) -> tuple[str, bool]:
    """Ask for an API key, always by the same request; return it, and if it was there before."""
    body = {"label": "mine", "scopes": ["*"]}
    answer = app.post("/v1/keys", body, headers={"Idempotency-Key": "once"})
    assert answer.status == 201, answer.body
    return answer.json["api_key"], answer.headers.get("idempotent-replayed") == "true"


def key_file(installation: Installation) -> Path:
    return installation.data / "master.key"


def test_after_a_rotation_everything_is_readable(
    installation: Installation, first: dict[str, Any]
) -> None:
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        user_id = make_user(app)
        made, _ = make_key(app)
    before = key_file(installation).read_bytes()
    done = installation.run("vault", "rotate")
    assert done.returncode == 0, done.stderr
    after = key_file(installation).read_bytes()
    assert (len(after), after == before) == (32, False)
    assert stat.S_IMODE(key_file(installation).stat().st_mode) == 0o600
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        assert make_key(app) == (made, True)
        user = Asker(installation.port, sign(first, user_id))
        assert user.get("/v1/me/notifications").status == 200


def test_the_status_counts_the_secrets_of_each_key(
    installation: Installation, first: dict[str, Any]
) -> None:
    assert first
    before = installation.run("vault", "status").stdout.split()
    # The key of user tokens, and the value that names the master key.
    assert before[1:] == ["2", "current"]
    assert installation.run("vault", "rotate").returncode == 0
    after = installation.run("vault", "status").stdout.split()
    # The key by which the audit log was signed before is kept, sealed.
    assert after[1:] == ["3", "current"]
    assert after[0] != before[0]


# On PostgreSQL the command adds the new key, and says how to go on.
@pytest.mark.parametrize("constellation", ["embedded"], indirect=True)
def test_the_key_of_a_running_server_is_not_replaced(server: Server) -> None:
    before = key_file(server.installation).read_bytes()
    done = server.installation.run("vault", "rotate")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Stop the server" in done.stderr
    assert key_file(server.installation).read_bytes() == before


def test_on_postgresql_nodes_are_restarted_in_between(
    postgres_database: str, tmp_path: Path
) -> None:
    installation = Installation(tmp_path, database=postgres_database)
    app = Asker(installation.port, installation.initialise()["app"]["api_key"])
    with installation:
        made, _ = make_key(app)
        done = installation.run("vault", "rotate")
        assert done.returncode == 1
        assert "Copy master.key to the data directory of every node." in done.stderr
        assert make_key(app) == (made, True)
    with installation:
        assert make_key(app) == (made, True)
        done = installation.run("vault", "rotate")
        assert done.returncode == 0, done.stderr
        assert make_key(app) == (made, True)
    assert len(key_file(installation).read_bytes()) == 32


def findings_of(installation: Installation) -> dict[str, str]:
    found = read_checklist(installation.run("doctor"))
    return {what: f"{state} {detail}" for what, (state, detail) in found.items()}


def test_the_doctor_checks_the_keys(installation: Installation, first: dict[str, Any]) -> None:
    assert first
    path = key_file(installation)
    assert findings_of(installation)["vault"].startswith("ok 2 encrypted secrets, key ")
    path.chmod(0o640)
    assert findings_of(installation)["vault"].endswith(f"→ Run chmod 600 {path}")
    path.chmod(0o600)
    right = path.read_bytes()
    path.write_bytes(b"x" * 32)
    assert "master.key does not have its key" in findings_of(installation)["vault"]
    path.write_bytes(b"n" * 32 + right)
    assert "to finish the rotation" in findings_of(installation)["vault"]
    path.unlink()
    assert (
        "is missing: 2 secrets cannot be decrypted → Copy master.key from another node"
        in findings_of(installation)["vault"]
    )


def test_the_doctor_counts_providers(installation: Installation, first: dict[str, Any]) -> None:
    assert first
    assert findings_of(installation)["providers"].startswith("ok 0 active")
    connection = apsw.Connection(str(installation.data / "clarion.db"))
    connection.execute(
        """INSERT INTO providers (app_id, channel, name, kind, settings, secrets, position,
        is_active, timeout_s, concurrency, is_sandbox, disabled_reason, created_at, updated_at)
        VALUES ('a', 'webhook', 'crm', 'webhook', '{}', '', 0, 0, 1, 1, 0, 'no answer', 1, 1)"""
    )
    connection.close()
    found = findings_of(installation)["providers"]
    assert found == (
        "note 0 active → Disabled after failures: webhook/crm (no answer). "
        "Fix what is wrong, and activate them."
    )


def test_no_secret_is_in_the_files_of_the_database(
    installation: Installation, first: dict[str, Any]
) -> None:
    with installation:
        made, _ = make_key(Asker(installation.port, first["app"]["api_key"]))
        files = [path for path in installation.data.glob("clarion.db*") if path.is_file()]
        assert len(files) > 1  # the write-ahead log among them
        content = b"".join(path.read_bytes() for path in files)
    assert b"mine" in content
    for secret in (made, first["app"]["user_secret"], first["app"]["api_key"]):
        assert secret.encode() not in content


def test_an_interrupted_rotation_is_resumed(
    installation: Installation, first: dict[str, Any]
) -> None:
    """As if it had been killed after the new key was stored; the server starts all the same."""
    old = key_file(installation).read_bytes()
    key_file(installation).write_bytes(b"n" * 32 + old)
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        user = Asker(installation.port, sign(first, make_user(app)))
        assert user.get("/v1/me/notifications").status == 200
    assert installation.run("vault", "rotate").returncode == 0
    assert key_file(installation).read_bytes() == b"n" * 32
    rows = apsw.Connection(str(installation.data / "clarion.db")).execute("SELECT id FROM apps")
    assert len(list(rows)) == 1
