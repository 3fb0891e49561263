"""`clarion backup` and `clarion restore`, on both engines: what comes back, and what is refused."""

import json
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from clarion.store.backups.archive import Archive, ArchiveWriter
from tests.conftest import run_apart, run_sql
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.replacing import replace

PASSPHRASE = "correct horse battery"

Make = Callable[[str], Installation]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.rest)])
def make(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> Iterator[Make]:
    """Makes installations on one engine, each with a folder and a database of its own."""
    with databases(request.param, postgres_url, tmp_path) as made:
        yield made


@contextmanager
def databases(engine: str, postgres_url: str, folder: Path) -> Iterator[Make]:
    names: list[str] = []

    def make_one(name: str) -> Installation:
        (folder / name).mkdir()
        if engine == "sqlite":
            return Installation(folder / name)
        database = f"backup_{name}_{folder.name[-20:].replace('-', '_')}"
        run_apart(run_sql(postgres_url, f"CREATE DATABASE {database}"))
        names.append(database)
        url = urlunsplit(urlsplit(postgres_url)._replace(path=f"/{database}"))
        return Installation(folder / name, database=url)

    yield make_one
    for name in names:
        run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def passphrase_file(tmp_path: Path) -> str:
    path = tmp_path / "passphrase"
    path.write_text(f"{PASSPHRASE}\n")
    return str(path)


def back_up(installation: Installation, target: Path, *flags: str) -> Path:
    done = installation.run("backup", str(target), *flags)
    assert done.returncode == 0, done.stderr
    assert f"to {target}" in done.stdout
    return target


def find_entries(installation: Installation, action: str) -> list[dict[str, Any]]:
    """Return the entries of an action in the audit log."""
    entries = map(json.loads, installation.run("audit", "export").stdout.splitlines())
    return [entry for entry in entries if entry["action"] == action]


def restore(installation: Installation, source: Path, *flags: str) -> str:
    done = installation.run("restore", str(source), *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(installation: Installation, source: Path, *flags: str) -> str:
    """Restore what must be refused; return why. Nothing is left behind."""
    before = sorted(installation.data.rglob("*")) if installation.data.exists() else []
    done = installation.run("restore", str(source), *flags)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    after = sorted(installation.data.rglob("*")) if installation.data.exists() else []
    made = {each.name for each in after} - {each.name for each in before}
    # A server that runs writes its own.
    assert made <= {"data", "tls", "provider-keys", "clarion.lock", "master.key.lock", "audit.log"}
    return done.stderr


def give_key(source: Installation, target: Installation) -> None:
    target.data.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(source.data / "master.key", target.data)


def fill(installation: Installation, first: dict[str, Any], users: int = 3) -> Asker:
    app = Asker(installation.port, first["app"]["api_key"])
    for number in range(users):
        attributes = {"plan": "gold", "note": "a\ttab, a\nline, \\N and 'ü'"}
        body = {"name": f"User {number}", "attributes": attributes}
        assert app.ask("PUT", f"/v1/users/u{number}", body).status == 201
        event = {"type": "POST_COMMENT", "recipient": {"user_id": f"u{number}"}}
        assert app.post("/v1/events", event).status == 202
    return app


def test_what_was_accepted_before_a_backup_is_restored(make: Make, tmp_path: Path) -> None:
    source, target = make("a"), make("b")
    first = source.initialise()
    with source:
        app = fill(source, first)
        before = app.get("/v1/users/u1").json
        segment = {"filter": "attributes.plan = 'gold'"}
        assert app.ask("PUT", "/v1/segments/gold", segment).status in (200, 201)
        file = back_up(source, tmp_path / "one.backup")
        assert app.ask("PUT", "/v1/users/later", {"name": "Later"}).status == 201
    (entry,) = find_entries(source, "backup")
    assert entry["actor_kind"] == "command"
    assert "one.backup" in str(entry["target"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "Copy the master.key" in restore(target, file)
    give_key(source, target)
    with target:
        app = Asker(target.port, first["app"]["api_key"])
        assert app.get("/v1/users/u1").json == before
        assert app.get("/v1/users/later").status == 404
        assert app.post("/v1/segments/gold/count", {}).json["count"] == 3
        assert app.ask("PUT", "/v1/users/new", {"attributes": {"plan": "gold"}}).status == 201
        assert app.post("/v1/segments/gold/count", {}).json["count"] == 4
    assert target.run("audit", "verify").returncode == 0
    assert "fault" not in target.run("doctor").stdout


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_the_manifest_says_what_is_in_the_file(make: Make, tmp_path: Path) -> None:
    source = make("a")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = set(archive.namelist())
    assert manifest["tables"]["apps"]["rows"] == 1
    # The key of user tokens, and the value that names the master key.
    assert list(manifest["master_keys"].values()) == [2]
    assert set(manifest["members"]) == names - {"manifest.json", "manifest.seal"}
    assert manifest["as_of"].endswith("Z")
    content = file.read_bytes()
    assert (source.data / "master.key").read_bytes() not in content


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_in_a_directory_the_file_is_named_after_the_time(make: Make, tmp_path: Path) -> None:
    source, folder = make("a"), tmp_path / "backups"
    source.initialise()
    folder.mkdir()
    assert source.run("backup", str(folder)).returncode == 0
    (file,) = folder.iterdir()
    assert file.match("clarion-*Z.backup")
    done = source.run("backup", str(file))
    assert (done.returncode, "exists already" in done.stderr) == (2, True)
    assert list(folder.iterdir()) == [file]


def test_keys_are_in_it_only_sealed_and_on_request(
    make: Make, tmp_path: Path, passphrase_file: str
) -> None:
    source, target = make("a"), make("b")
    first = source.initialise()
    flags = ("--with-keys", "--passphrase-file", passphrase_file)
    file = back_up(source, tmp_path / "one.backup", *flags)
    with zipfile.ZipFile(file) as archive:
        content = b"".join(map(archive.read, archive.namelist()))
    master_key = (source.data / "master.key").read_bytes()
    assert master_key not in content
    assert first["app"]["api_key"].encode() not in content
    wrong = tmp_path / "wrong"
    wrong.write_text("correct horse staple")
    said = refuse(target, file, "--with-keys", "--passphrase-file", str(wrong))
    assert "passphrase does not open" in said
    restore(target, file, *flags)
    assert (target.data / "master.key").read_bytes() == master_key
    assert stat.S_IMODE((target.data / "master.key").stat().st_mode) == 0o600
    assert (target.data / "first-run.json").exists()
    with target:
        assert Asker(target.port, first["app"]["api_key"]).get("/v1/keys").status == 200


def test_a_backup_is_restored_only_where_nothing_is(make: Make, tmp_path: Path) -> None:
    source = make("a")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    with source:
        said = refuse(source, file)
    assert "Another Clarion server" in said or "is not empty" in said
    said = refuse(source, file)
    assert "exists already" in said or "is not empty" in said


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_a_backup_is_not_restored_beside_another_key(make: Make, tmp_path: Path) -> None:
    source, target = make("a"), make("b")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    target.data.mkdir(mode=0o700)
    (target.data / "master.key").write_bytes(b"x" * 32)
    assert "are encrypted with the master key" in refuse(target, file)


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_a_flipped_bit_is_found_before_anything_is_touched(make: Make, tmp_path: Path) -> None:
    """`tests/unit/store/test_archive.py` flips more of them."""
    source, target = make("a"), make("b")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    assert "is damaged" in refuse(target, file)


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_a_backup_that_was_changed_is_refused_where_the_master_key_is(
    make: Make, tmp_path: Path
) -> None:
    """Whoever can write to where backups are kept can compute checksums, too."""
    source, target = make("a"), make("b")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    changed, unsealed = tmp_path / "two.backup", tmp_path / "three.backup"
    with Archive(file) as archive:
        seal = archive.read_seal() or b""
        for path, sealer in ((changed, lambda _: seal), (unsealed, None)):
            with ArchiveWriter(path) as writer:
                for name in archive.manifest.members:
                    with writer.add(name) as write:
                        write(b"".join(archive.read(name)))
                manifest = replace(archive.manifest, as_of="2026-01-01T00:00:00.000Z")
                writer.finish(manifest, sealer)
    give_key(source, target)
    assert "or was changed" in refuse(target, changed)
    assert "has no seal" in refuse(target, unsealed)
    assert "Restored" in restore(target, unsealed, "--accept-unsealed")
    (target.data / "clarion.db").unlink()
    assert "Restored" in restore(target, file)
    elsewhere = make("c")
    assert "Its seal was not verified" in restore(elsewhere, file)


def test_a_backup_of_a_newer_release_or_another_engine_is_refused(
    make: Make, tmp_path: Path, postgres_database: str
) -> None:
    source, target = make("a"), make("b")
    source.initialise()
    file = back_up(source, tmp_path / "one.backup")
    other = Installation(tmp_path, database=postgres_database)
    if "database" in source.flags:
        other = Installation(tmp_path)
    assert "`clarion migrate-data` copies to the other one" in refuse(other, file)
    newer = "INSERT INTO migrations (version, name, checksum) VALUES (9999, 'later', 'x')"
    source.execute(newer)
    later = back_up(source, tmp_path / "two.backup")
    assert "only knows up to" in refuse(target, later)


def test_who_was_erased_after_the_backup_is_erased_again(make: Make, tmp_path: Path) -> None:
    source, target = make("a"), make("b")
    first = source.initialise()
    with source:
        app = fill(source, first, users=4)
        file = back_up(source, tmp_path / "one.backup")
        assert app.delete("/v1/users/u0?hard=true").status in (200, 202)
        assert app.delete("/v1/users/u1").status == 200
        assert app.delete("/v1/users/u2").status == 200
        assert app.post("/v1/users/u2/restore").status == 200
    log = source.data / "audit.log"
    assert log.exists()
    give_key(source, target)
    shutil.copy(log, target.data)
    assert "Erased 1 user and deleted 1 user again." in restore(target, file)
    assert [each.name for each in target.data.glob("before-restore-*/*")] == ["audit.log"]
    with target:
        app = Asker(target.port, first["app"]["api_key"])
        found = [app.get(f"/v1/users/u{number}").status for number in range(4)]
        assert found == [404, 404, 200, 200]
        assert app.post("/v1/users/u0/restore").status == 404
        assert app.post("/v1/users/u1/restore").status == 200
    assert target.run("audit", "verify").returncode == 0


@pytest.mark.parametrize("make", ["sqlite"], indirect=True)
def test_erasures_are_replayed_later_and_only_by_a_log_that_is_ours(
    make: Make, tmp_path: Path
) -> None:
    source, target = make("a"), make("b")
    first = source.initialise()
    with source:
        app = fill(source, first, users=2)
        event = {"type": "POST_LIKE", "recipient": {"user_id": "u1"}}
        actor = {"id": "only-an-actor", "name": "Zoe"}
        assert app.post("/v1/events", event | {"actor": actor}).status == 202
        file = back_up(source, tmp_path / "one.backup")
        assert app.delete("/v1/users/u0?hard=true").status in (200, 202)
        assert app.delete("/v1/users/only-an-actor?hard=true").status in (200, 202)
    log = source.data / "audit.log"
    said = restore(target, file, "--audit-log", str(log))
    assert f"clarion user replay-erasures {log}" in said
    give_key(source, target)
    changed = tmp_path / "changed.log"
    changed.write_text(log.read_text().replace('"erased":"true"', '"erased":"false"'))
    commands = [(changed, "Erased 0 users and"), (log, "Erased 2 users and")]
    for path, expected in commands:
        done = target.run("user", "replay-erasures", str(path))
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
