"""`clarion doctor`: check everything a server needs, and say how to fix each fault."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import apsw
import hiredis
from cryptography import x509

from clarion.access.sql import FIND_APP
from clarion.access.vault import Vault, key_id_of
from clarion.app.key_rotation import count_keys, find_unreadable
from clarion.app.stores import open_audit_keys
from clarion.audit.log_file import LogFile
from clarion.audit.sql import Chain, load_retired_keys
from clarion.audit.verification import verify_chain, verify_file
from clarion.channels.sql import SELECT_ACTIVE, SELECT_DISABLED, read_provider
from clarion.cli.database_reader import fetch_postgres, fetch_sqlite
from clarion.cli.findings import Finding, fault, note, ok, print_findings, read_error
from clarion.cli.first_run import FirstRun, read_first_run
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.printing import count_entries
from clarion.cli.provider_trials import TRIED_LIMIT, describe_trials, try_providers
from clarion.errors import ClarionError, StartError, count
from clarion.http.listeners import check_free
from clarion.nodes.redis.address import find_exposed, parse_address
from clarion.nodes.redis.client import FAILURES, connect_once
from clarion.nodes.redis.link import RedisRefused
from clarion.nodes.sql import SELECT as SELECT_NODES
from clarion.nodes.sql import SELECT_LEADER
from clarion.nodes.tables import LEADERS, NODES
from clarion.settings import Settings
from clarion.store.engine import Fetch
from clarion.store.identity import SELECT as SELECT_INSTALLATION
from clarion.store.migrations.plan import (
    find_missing,
    load,
    read_from_postgres,
    read_from_sqlite,
)
from clarion.store.opening import describe_url, sqlite_path
from clarion.store.postgres.clock import SKEW_LIMIT_MS, DatabaseClock
from clarion.store.postgres.engine import READ_TIME, connected
from clarion.store.sqlite.moved import refuse_moved
from clarion.system import descriptors
from clarion.system.connection_faults import describe_fault
from clarion.system.data_directory import PRIVATE_UMASK, DataDirectory

_MIN_FREE_BYTES = 1 << 30
_HEALTH_BYTES = 4096
_NOT_CHECKED = "not checked without a database that is up to date"

_DATABASE_FIRST = "Do first what the line `database` says."


class _NotChecked(Exception):
    """A check cannot run, because something it needs is missing."""


async def doctor(**settings: SettingFlags) -> int:
    loaded = load_settings(settings)
    findings = {what: await _run(check, loaded) for what, check in _CHECKS.items()}
    print_findings(findings)
    return int(any(each.state == "fault" for each in findings.values()))


async def _run(check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        return await check(settings)
    except _NotChecked as error:
        return note(str(error), _DATABASE_FIRST)
    except ClarionError as error:
        return read_error(error, "See the log of the server.")
    except OSError as error:
        detail = f"this account cannot use {error.filename}: {error.strerror}"
        return fault(detail, f"Run `clarion doctor` as its owner, or run {_own(error.filename)}")


def _own(path: Path | str) -> str:
    """Return the command that makes files those of this account."""
    return f"chown -R $(id -un) {path}"


async def _python(_settings: Settings) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return ok(f"{version}, SQLite {apsw.sqlite_lib_version()}")


async def _directory(settings: Settings) -> Finding:
    path = settings.data
    if not path.exists():
        parent = _existing(path)
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            detail = f"{path} cannot be created: this account cannot write to {parent}"
            return fault(detail, f"Choose another directory with --data, or run {_own(parent)}")
        return note(f"{path} does not exist yet", "Run `clarion init`: it creates the directory.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        detail = f"this account cannot read and write {path}"
        return fault(detail, f"Choose another directory with --data, or run {_own(path)}")
    if path.stat().st_mode & 0o077:
        return note(f"other accounts can read {path}", f"Run chmod 700 {path}")
    return ok(str(path))


async def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_existing(settings.data)).free
    detail = f"{free / (1 << 30):.1f} GiB free, at least 1 GiB needed"
    if free >= _MIN_FREE_BYTES:
        return ok(detail)
    return fault(detail, "Free some space, or move --data to a larger disk.")


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())


async def _database(settings: Settings) -> Finding:
    path = sqlite_path(settings.database_url)
    return _sqlite(path) if path else await _postgres(settings.database_url)


def _sqlite(path: str) -> Finding:
    refuse_moved(Path(path))
    if not Path(path).exists():
        return note(f"{path} does not exist yet", "Run `clarion init`: it creates the database.")
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        missing = find_missing(load("sqlite"), read_from_sqlite(connection))
        connection.close()
    except apsw.Error as error:
        detail = f"{path} is not a readable Clarion database ({type(error).__name__})"
        return fault(detail, "Move it away, and restore the last backup: clarion restore FILE")
    return _migrations(f"SQLite {path}", len(missing))


async def _postgres(url: str) -> Finding:
    async with connected(url) as connection:
        version = await connection.fetchval("SHOW server_version")
        if await connection.fetchval("SHOW fsync") != "on":
            detail = "PostgreSQL runs with fsync=off: a crash can lose data"
            return fault(detail, "Set fsync = on in postgresql.conf, and reload PostgreSQL.")
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return note("the database is empty", "Run `clarion init`: it creates the tables.")
        missing = find_missing(load("postgres"), await read_from_postgres(connection))
    return _migrations(f"PostgreSQL {version}", len(missing))


async def _clock(settings: Settings) -> Finding:
    if sqlite_path(settings.database_url):
        return ok("that of this machine")
    try:
        async with connected(settings.database_url) as connection:
            clock = DatabaseClock(partial(connection.fetchval, READ_TIME))
            await clock.measure()
    except StartError as error:
        raise _NotChecked("not checked without the database") from error
    ahead_s = clock.skew_ms / 1000
    detail = f"{abs(ahead_s):,.3f} s {'behind' if ahead_s < 0 else 'ahead of'} PostgreSQL"
    if abs(clock.skew_ms) > SKEW_LIMIT_MS:
        step = (
            "Set the clock of this machine. Clarion uses that of PostgreSQL, but its log does not."
        )
        return note(detail, step)
    return ok(detail)


def _migrations(database: str, missing: int) -> Finding:
    if missing:
        detail = f"{database}, {count(missing, 'migration')} behind this release"
        return note(detail, "Start the server, or run `clarion migrate`.")
    return ok(f"{database}, up to date")


async def _nodes(settings: Settings) -> Finding:
    if sqlite_path(settings.database_url):
        return ok("one, with SQLite")
    async with _open_reader(settings) as fetch:
        nodes = [NODES.read(row) for row in await fetch(SELECT_NODES)]
        leaders = [LEADERS.read(row) for row in await fetch(SELECT_LEADER)]
    if not nodes:
        return ok("none is running")
    leads = {each.node_id for each in leaders}
    names = [f"{n.name} {n.version}{' (leader)' * (n.id in leads)}" for n in nodes]
    return ok(f"{len(nodes)}: {', '.join(names)}")


async def _vault(settings: Settings) -> Finding:
    directory = DataDirectory(settings.data)
    path, has_key = directory.master_key, directory.master_key.exists()
    if has_key and path.stat().st_mode & PRIVATE_UMASK:
        return fault(f"other accounts can read {path}", f"Run chmod 600 {path}")
    keys = directory.read_master_keys() if has_key else ()
    async with _open_reader(settings) as fetch:
        counts = await count_keys(fetch)
        if not keys:
            return _missing_key(path, sum(counts.values()))
        unreadable = await find_unreadable(fetch, Vault(*keys))
    unknown = {each for each in counts if each} - set(map(key_id_of, keys))
    if unknown or unreadable:
        names = ", ".join(sorted(each.hex() for each in unknown))
        detail = unreadable or f"{path} does not have these keys, which are in use: {names}"
        return fault(detail.removesuffix("."), _restore_key(path))
    secrets = count(sum(counts.values()), "encrypted secret")
    detail = f"{secrets}, key {key_id_of(keys[0]).hex()}"
    if len(keys) > 1:
        step = "Stop the server, and run `clarion vault rotate` to finish the rotation"
        return note(f"{detail}, and a second one that is being replaced", step)
    return ok(detail)


def _restore_key(path: Path) -> str:
    return f"Copy {path.name} from another node, or restore it from a backup: {path}"


def _missing_key(path: Path, secrets: int) -> Finding:
    if secrets:
        detail = f"{path} is missing: {count(secrets, 'secret')} cannot be decrypted"
        return fault(detail, _restore_key(path))
    return note(f"there is no {path} yet", "Nothing to do: the first start creates it.")


async def _keys(settings: Settings) -> Finding:
    saved = DataDirectory(settings.data).first_run
    if not saved.exists():
        step = "For a new database, run `clarion init`: it creates the file."
        return note(f"there is no {saved}", step)
    first = read_first_run(saved)
    async with _open_reader(settings) as fetch:
        if await _has_keys(fetch, first):
            return ok(f"{saved} has keys of this database")
    return note(
        f"{saved} has keys of {first.database.name}, not of this one",
        f"Run `clarion init` to set up {describe_url(settings.database_url)}, or choose the other "
        "one with --database.",
    )


async def _has_keys(fetch: Fetch, first: FirstRun) -> bool:
    """Whether saved keys are those of a database."""
    if first.database is None:
        return bool(await fetch(FIND_APP, id=first.app.id))
    return [first.database.id] == [row[0] for row in await fetch(SELECT_INSTALLATION)]


async def _audit(settings: Settings) -> Finding:
    directory, path = DataDirectory(settings.data), settings.audit_log_path
    if not directory.master_key.exists():
        return note(f"{_NOT_CHECKED}, and master.key", "Do first what the line `vault` says.")
    async with _open_reader(settings, f"{_NOT_CHECKED}, and master.key") as fetch:
        keys, chain = open_audit_keys(directory), Chain(fetch)
        await load_retired_keys(fetch, keys, Vault(*directory.read_master_keys()))
        verified = await verify_chain(chain, keys)
        wrong = verified.fault
        if wrong is None and path is not None:
            wrong = await verify_file(LogFile(path), chain, keys)
    if wrong is not None:
        return fault(
            f"the audit log is not as it was written: {wrong}",
            "Find out who changed it: docs/how-to/audit.md says what each fault means. After a "
            "restore, move the newer audit.log away.",
        )
    detail = count_entries(verified.last - verified.first + 1)
    return ok(f"{detail}; {verified.waiting:,} to be linked" if verified.waiting else detail)


async def _providers(settings: Settings) -> Finding:
    async with _open_reader(settings) as fetch:
        disabled = await fetch(SELECT_DISABLED)
        rows = await fetch(SELECT_ACTIVE, limit=TRIED_LIMIT + 1)
    keys = DataDirectory(settings.data).read_master_keys() if rows else ()
    active = [read_provider(row, Vault(*keys)) for row in rows]
    found = describe_trials(await try_providers(active, settings), active=len(active))
    if not disabled:
        return found
    names = [f"{channel}/{name} ({reason})" for channel, name, reason in disabled]
    step = f"Disabled after failures: {', '.join(names)}. Fix what is wrong, and activate them."
    return Finding(
        "note" if found.state == "ok" else found.state, found.detail, (step, *found.steps)
    )


@contextlib.asynccontextmanager
async def _open_reader(settings: Settings, otherwise: str = _NOT_CHECKED) -> AsyncIterator[Fetch]:
    """Open the database to read a little, without changing it; it must be up to date."""
    if (await _run(_database, settings))[0] != "ok":
        raise _NotChecked(otherwise)
    if path := sqlite_path(settings.database_url):
        with contextlib.closing(
            apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        ) as connection:
            yield partial(fetch_sqlite, connection)
    else:
        async with connected(settings.database_url) as client:
            yield partial(fetch_postgres, client)


async def _redis(settings: Settings) -> Finding:
    if not settings.redis:
        return ok("not used")
    address = parse_address(settings.redis)
    try:
        about, exposed = await connect_once(address), await find_exposed(address)
    except FAILURES as error:
        hosts = ", ".join(f"{each.host}:{each.port}" for each in address.servers)
        refused = isinstance(error, RedisRefused | hiredis.HiredisError)
        why = f"Redis refuses commands: {error}" if refused else describe_fault(error, hosts)
        return fault(why, "Start it, or correct --redis. Clarion works without it, more slowly.")
    detail = f"{about.product} {about.version}"
    if about.primaries:
        detail += f", a Cluster with {count(about.primaries, 'primary', 'primaries')}"
    if exposed:
        step = "Use rediss:// in --redis: everything that nodes exchange can be read on the way."
        return note(f"{detail}, without TLS at {exposed}, which is no private address", step)
    return ok(detail)


async def _ports(settings: Settings) -> Finding:
    try:
        check_free(settings.addresses)
    except StartError as error:
        if _is_clarion(settings):
            return ok(f"Clarion is running on {settings.listen}")
        return _describe_ports(error.detail.splitlines())
    return ok("free")


def _describe_ports(lines: list[str]) -> Finding:
    """Return the ports that are in use, and what to do about them once."""
    taken, _, step = lines[0].partition(". ")
    others = [line.partition(". ")[0] for line in lines[1:]]
    return fault("; ".join([taken, *others]), step or "Choose another address.")


def _is_clarion(settings: Settings) -> bool:
    """Whether the process that occupies the port is a Clarion server."""
    connection = HTTPConnection(settings.listen.host, settings.listen.port, timeout=2)
    try:
        connection.request("GET", "/health")
        return b'"server_id"' in connection.getresponse().read(_HEALTH_BYTES)
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


async def _certificate(settings: Settings) -> Finding:
    path = settings.tls_certificate or DataDirectory(settings.data).tls / "server.pem"
    if not path.exists():
        return note("there is none yet", "Nothing to do: the first start creates one.")
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        return fault(f"{path} cannot be read: {error}", "Correct --tls-certificate, or the file.")
    days = (certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)).days
    if days > 0:
        return ok(f"{path} expires in {count(days, 'day')}")
    detail = f"{path} {'expires today' if days == 0 else 'has expired'}"
    return fault(detail, "Renew the certificate, and restart the server.")


async def _descriptors(_settings: Settings) -> Finding:
    limit = descriptors.raise_limit()
    shares = descriptors.share(limit)
    detail = f"{limit:,} files: {shares.http:,} HTTP and {shares.gateway:,} WebSocket connections"
    if limit < descriptors.LOW:
        return note(detail, f"{descriptors.ADVICE[0].upper()}{descriptors.ADVICE[1:]}.")
    return ok(detail)


_CHECKS: dict[str, Callable[[Settings], Awaitable[Finding]]] = {
    "python": _python,
    "directory": _directory,
    "disk": _disk,
    "database": _database,
    "clock": _clock,
    "nodes": _nodes,
    "vault": _vault,
    "keys": _keys,
    "audit log": _audit,
    "providers": _providers,
    "redis": _redis,
    "ports": _ports,
    "certificate": _certificate,
    "descriptors": _descriptors,
}
