"""`clarion user create` and `import`, run against a real server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fork_server
from tests.e2e.test_device_commands import RUN_LIMIT_S, ClarionServer
from tests.fork_server import CLARION
from tests.processes import environment

HEAD = "id,name,email,tags,billing_address.city\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ClarionServer]:
    with ClarionServer() as server:
        yield server


def run(
    server: ClarionServer, *arguments: str, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [*CLARION, "user", *arguments, f"--data={server.data}"]
    return fork_server.run(command, environment(server.data.parent), typed, RUN_LIMIT_S)


def test_a_user_is_created_then_updated(server: ClarionServer) -> None:
    first = run(server, "create", "ana", "--name", "Ana", "--tag", "vip", "--tag", "beta")
    assert (first.returncode, first.stdout, first.stderr) == (0, "Created ana.\n", "")
    second = run(server, "create", "ana", "--email", "ana@example.com")
    assert (second.returncode, second.stdout) == (0, "Updated ana.\n")
    third = run(server, "create", "ana", "--json")
    assert json.loads(third.stdout) == {"id": "ana", "status": "updated"}
    _, ana = server.get("/v1/users/ana")
    assert (ana["name"], ana["email"], ana["tags"]) == ("Ana", "ana@example.com", ["vip", "beta"])


def test_what_is_wrong_with_a_user_is_one_line_each(server: ClarionServer) -> None:
    done = run(server, "create", "a b", "--phone", "x", "--email", "x")
    assert (done.returncode, done.stdout) == (1, "")
    fields = [line.split(": ")[1] for line in done.stderr.splitlines()]
    assert fields == ["id", "email", "phone"]


def test_a_csv_file_is_imported_with_faults_by_line(server: ClarionServer, tmp_path: Path) -> None:
    rows = [f"csv-{n},Name {n},{n}@csv.example.com,vip;csv,Köln" for n in range(1200)]
    rows[7] = "csv-7,Name 7,not an address,,"
    rows[9] = "csv-9"
    file = tmp_path / "users.csv"
    file.write_text(HEAD + "\n".join(rows) + "\n")
    done = run(server, "import", str(file))
    assert (done.returncode, done.stdout) == (1, "Created 1,198, updated 0, refused 2.\n")
    assert done.stderr.splitlines() == [
        "clarion: line 9: email: must be an email address, like ana@example.com",
        "clarion: line 11: has 1 value, not 5",
    ]
    _, user = server.get("/v1/users/csv-1199")
    assert (user["tags"], user["billing_address"]) == (["vip", "csv"], {"city": "Köln"})
    again = run(server, "import", str(file), "--json", "--from-line", "9")
    summary = json.loads(again.stdout)
    faults = summary.pop("faults")
    assert summary == {"created": 0, "updated": 1191, "refused": 2, "next_line": 1202}
    assert [(fault["line"], fault["field"]) for fault in faults] == [(9, "email"), (11, "")]


def test_json_lines_come_from_standard_input(server: ClarionServer) -> None:
    users = [{"id": "line-1", "attributes": {"a": 1}}, {"id": "line-1", "name": "Later"}, 7]
    typed = "\n".join(map(json.dumps, users))
    done = run(server, "import", "--format", "jsonl", typed=typed)
    assert (done.returncode, done.stdout) == (1, "Created 1, updated 1, refused 1.\n")
    assert done.stderr == "clarion: line 3: is not an object\n"
    _, user = server.get("/v1/users/line-1")
    assert (user["name"], user["attributes"]) == ("Later", {"a": 1})


def test_an_import_that_fails_says_how_to_go_on(server: ClarionServer, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text(HEAD + "a1,,,,\n" * 2)
    wrong = run(server, "import", str(file), "--url", "http://127.0.0.1:9")
    assert wrong.returncode == 1
    assert wrong.stderr.splitlines()[-1] == (
        "clarion: Imported 0 users. Continue with --from-line 1."
    )
    missing = run(server, "import", str(tmp_path / "nothing.csv"))
    assert (missing.returncode, "Cannot read" in missing.stderr) == (2, True)


def test_importing_loads_no_web_server() -> None:
    code = "import sys, clarion.cli.user; print('litestar' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
