"""The command line: what it creates, and how it reports errors."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clarion
from clarion.settings import describe
from clarion.store.migrations.plan import load
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation, environment, run_clarion

# On a machine without curl, a few of its options.
CURL = f'curl() {{ {sys.executable} -m tests.e2e.curl "$@"; }}'


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def faults_of(done: subprocess.CompletedProcess[str], code: int = 2) -> list[str]:
    """Return the error lines of a command that failed: one for each fault, no traceback."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert done.returncode == code, done.stderr
    assert lines
    assert all(line.startswith("clarion: ") for line in lines), done.stderr
    return [line.removeprefix("clarion: ") for line in lines]


def test_the_first_run_prints_everything_a_client_needs(installation: Installation) -> None:
    first = installation.initialise()
    assert set(first) == {"admin", "app", "tls", "urls", "database"}
    assert set(first["admin"]) == {"setup_url"}
    assert set(first["app"]) == {
        "id",
        "bundle_id",
        "api_key",
        "user_secret",
        "team_id",
        "key_id",
        "provider_key_path",
    }
    assert first["urls"] == {
        "api": f"http://127.0.0.1:{installation.port}",
        "tls": f"https://127.0.0.1:{installation.tls_port}",
        "gateway": f"ws://127.0.0.1:{installation.gateway_port}",
        "admin": f"http://127.0.0.1:{installation.port}/admin",
    }
    assert Path(first["tls"]["ca_path"]).is_file()
    assert Path(first["app"]["provider_key_path"]).is_file()


def test_a_second_run_prints_the_same(server: Server) -> None:
    again = server.installation.initialise()
    assert again | {"admin": None} == server.first | {"admin": None}


def test_the_database_is_migrated_once(tmp_path: Path) -> None:
    first, second = (run_clarion("migrate", data=str(tmp_path / "data")) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    titles = [each.title for each in load("sqlite")]
    assert first.stdout == f"Applied {len(titles)} migrations, up to {titles[-1]}.\n"
    assert second.stdout == "The database is up to date.\n"


def test_the_help_names_every_setting() -> None:
    shown = run_clarion("serve", "--help").stdout
    for flag, metavar, variable, default, _doc in describe():
        assert f"{flag} {metavar}" in shown
        assert f"[{variable}]" in shown
        assert default in shown


def test_the_help_names_every_command() -> None:
    shown = run_clarion("--help").stdout
    for command in ("serve", "init", "migrate", "doctor", "app", "key", "admin"):
        assert command in shown


def test_the_module_is_the_command() -> None:
    done = run_clarion("--version")
    assert (done.returncode, done.stdout.strip()) == (0, clarion.__version__)


def test_the_installed_command_is_there() -> None:
    program = Path(sys.executable).with_name("clarion")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, clarion.__version__)


def test_settings_may_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "clarion.toml"
    file.write_text(f"data = '{tmp_path / 'data'}'\ngrace_s = 0\n")
    done = subprocess.run(
        [sys.executable, "-m", "clarion", "serve"],
        env=environment(CLARION_CONFIG=str(file), CLARION_ROLES="cook"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert [fault.split(":")[0] for fault in faults_of(done)] == [
        f"`grace_s` in {file}",
        "CLARION_ROLES",
    ]


def test_all_faults_of_the_settings_are_reported_at_once(tmp_path: Path) -> None:
    done = run_clarion(
        "serve", data=str(tmp_path / "data"), listen="nowhere", grace_s="0", lissten="x"
    )
    assert faults_of(done) == [
        "--lissten: there is no such setting; did you mean --listen?",
        (
            "--listen: must be host:port with a port from 1 to 65535, "
            "like 127.0.0.1:8080 or [::1]:8080, not 'nowhere'"
        ),
        "--grace-s: must be a whole number from 1 to 600, not '0'",
    ]
    assert not (tmp_path / "data").exists()


def test_apps_and_keys_are_created_and_listed(installation: Installation) -> None:
    created = json.loads(installation.run("app", "create", "My App", "com.example.mine").stdout)
    assert f"{created['id']}  com.example.mine  My App" in installation.run("app", "list").stdout
    key = installation.run(
        "key", "create", created["id"], "for tests", "events:write"
    ).stdout.strip()
    assert key.startswith("ck_")
    revoked = installation.run("key", "revoke", created["id"], key.split("_")[1])
    assert (revoked.returncode, revoked.stdout) == (0, f"Revoked {key.split('_')[1]}.\n")


def test_administrators_are_created_listed_reset_and_deleted(installation: Installation) -> None:
    app_id = json.loads(installation.run("app", "create", "App", "com.example.team").stdout)["id"]
    made = installation.run("admin", "create", "ana").stdout.strip()
    assert made.startswith(f"http://127.0.0.1:{installation.port}/admin/setup#")
    assert faults_of(installation.run("admin", "create", "ana"))
    roles = ("--role=viewer", f"--app-role={app_id}=editor")
    ben = json.loads(installation.run("admin", "create", "ben", *roles, "--json").stdout)
    assert (ben["role"], ben["app_roles"]) == ("viewer", {app_id: "editor"})
    listed = {each["username"]: each for each in list_administrators(installation)}
    assert (listed["ana"]["role"], listed["ana"]["has_password"]) == ("admin", False)
    assert "setup_url" not in listed["ben"]
    reset = json.loads(installation.run("admin", "reset", "ben", "--totp", "--json").stdout)
    assert reset["setup_url"] != ben["setup_url"]
    for words, state in (("disable", "disabled"), ("enable", "invited")):
        assert installation.run("admin", words, "ben").returncode == 0
        assert (
            f"ben  viewer  {app_id}=editor  {state}\n" in installation.run("admin", "list").stdout
        )
    assert installation.run("admin", "delete", "ben").stdout == "Deleted ben.\n"
    assert [each["username"] for each in list_administrators(installation)] == ["ana"]


def list_administrators(installation: Installation) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(installation.run("admin", "list", "--json").stdout)
    return listed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["app", "create", "App", "nonsense"], "bundle_id: must look like com.example.app"),
        (["admin", "create", "Ana"], "username: must have 1 to 64 lower-case letters"),
        (["admin", "create", "eva", "--app-role", "x=owner"], "--app-role: must be APP_ID=ROLE"),
        (["admin", "create", "eva", "--app-role", "x=admin"], "There is no app x."),
        (["admin", "reset", "nobody"], "There is no administrator nobody."),
        (["admin", "disable", "nobody"], "There is no administrator nobody."),
        (["admin", "delete", "nobody"], "There is no administrator nobody."),
        (["key", "create", "nobody", "label"], "There is no app nobody"),
        (["key", "revoke", "nobody", "nothing"], "The app nobody has no key nothing"),
    ],
)
def test_a_command_that_fails_says_why(
    installation: Installation, words: list[str], expected: str
) -> None:
    assert expected in faults_of(installation.run(*words))[0]


def test_an_unknown_scope_is_reported_with_the_known_ones(installation: Installation) -> None:
    app_id = installation.initialise()["app"]["id"]
    (fault,) = faults_of(installation.run("key", "create", app_id, "label", "events:wrte"))
    assert fault.startswith("scopes: must be `*` or some of events:write, ")


def test_the_curl_lines_of_the_greeting_work(tmp_path: Path) -> None:
    """They are what a newcomer tries first."""
    installation = Installation(tmp_path)
    greeting = installation.run("init", "--greet").stdout
    begin, end = greeting.index("  eval"), greeting.index("If something")
    assert installation.initialise()["app"]["api_key"] not in greeting
    clarion = f"{sys.executable} -m clarion"
    lines = greeting[begin:end].replace(".venv/bin/clarion", clarion)
    script = lines if shutil.which("curl") else f"{CURL}\n{lines}"
    with installation:
        done = subprocess.run(
            ["/bin/sh", "-euc", script], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout
    assert '"status":"pending"' in done.stdout


def test_the_variables_for_a_shell_work_in_any_of_them(server: Server) -> None:
    done = server.installation.run("env")
    assert done.returncode == 0, done.stderr
    program = (
        f"eval {shlex.quote(done.stdout)}\n" + '[ -n "$KEY$APP$GATEWAY$DATA" ]\napi GET /v1/caller'
    )
    script = f"{CURL}\n{program}"
    ran = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, check=False)
    assert json.loads(ran.stdout)["app_id"] == server.first["app"]["id"], ran.stderr
    assert ran.stdout.endswith("}\n")
