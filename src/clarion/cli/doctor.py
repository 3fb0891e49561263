"""`clarion doctor`: check everything a server needs, and say how to fix what is wrong."""

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
from clarion.cli.first_run import FirstRun, read_first_run
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.provider_trials import TRIED_LIMIT, State, describe_trials, try_providers
from clarion.errors import ClarionError, StartError
from clarion.http.listeners import check_free
from clarion.nodes.redis.address import find_exposed, parse_address
from clarion.nodes.redis.client import FAILURES, connect_once
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
from clarion.system.data_directory import PRIVATE_UMASK, DataDirectory

_MIN_FREE_BYTES = 1 << 30
_HEALTH_BYTES = 4096
_NOT_CHECKED = "not checked without a database that is up to date"

Finding = tuple[State, str]


class _NotChecked(Exception):
    """A check needs something that is not there."""


async def doctor(**settings: SettingFlags) -> int:
    loaded = load_settings(settings)
    findings = {what: await _run(check, loaded) for what, check in _CHECKS.items()}
    for what, (state, detail) in findings.items():
        print(f"{state:6} {what:12} {detail}")
    return int(any(state == "fault" for state, _ in findings.values()))


async def _run(check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        return await check(settings)
    except _NotChecked as error:
        return "note", str(error)
    except ClarionError as error:
        return "fault", error.detail
    except OSError as error:
        return "fault", f"this account cannot use {error.filename}: {error.strerror}"


async def _python(_settings: Settings) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return "ok", f"{version}, SQLite {apsw.sqlite_lib_version()}"


async def _directory(settings: Settings) -> Finding:
    path = settings.data
    if not path.exists():
        parent = _existing(path)
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            return "fault", f"{path} cannot be created: this account cannot write to {parent}"
        return "note", f"{path} does not exist yet; `clarion init` creates it"
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return "fault", f"this account cannot read and write {path}"
    if path.stat().st_mode & 0o077:
        return "note", f"other accounts can read {path}; run chmod 700 {path}"
    return "ok", str(path)


async def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_existing(settings.data)).free
    detail = f"{free / (1 << 30):.1f} GiB free, at least 1 GiB needed"
    return "ok" if free >= _MIN_FREE_BYTES else "fault", detail


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())


async def _database(settings: Settings) -> Finding:
    path = sqlite_path(settings.database_url)
    return _sqlite(path) if path else await _postgres(settings.database_url)


def _sqlite(path: str) -> Finding:
    refuse_moved(Path(path))
    if not Path(path).exists():
        return "note", f"{path} does not exist yet; `clarion migrate` creates it"
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        missing = find_missing(load("sqlite"), read_from_sqlite(connection))
        connection.close()
    except apsw.Error as error:
        return "fault", f"{path} is not a readable Clarion database ({type(error).__name__})"
    return _migrations(f"SQLite {path}", len(missing))


async def _postgres(url: str) -> Finding:
    async with connected(url) as connection:
        version = await connection.fetchval("SHOW server_version")
        if await connection.fetchval("SHOW fsync") != "on":
            return "fault", "PostgreSQL runs with fsync=off: a crash can lose data"
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return "note", "the database is empty; `clarion migrate` creates the tables"
        missing = find_missing(load("postgres"), await read_from_postgres(connection))
    return _migrations(f"PostgreSQL {version}", len(missing))


async def _clock(settings: Settings) -> Finding:
    if sqlite_path(settings.database_url):
        return "ok", "that of this machine"
    async with connected(settings.database_url) as connection:
        clock = DatabaseClock(partial(connection.fetchval, READ_TIME))
        await clock.measure()
    ahead_s = clock.skew_ms / 1000
    detail = f"{abs(ahead_s):,.3f} s {'behind' if ahead_s < 0 else 'ahead of'} PostgreSQL"
    if abs(clock.skew_ms) > SKEW_LIMIT_MS:
        return "note", f"{detail}; nodes go by PostgreSQL's clock, but set that of this machine"
    return "ok", detail


def _migrations(database: str, missing: int) -> Finding:
    if missing:
        return "note", f"{database}; the next start applies {missing} migrations"
    return "ok", f"{database}, up to date"


async def _nodes(settings: Settings) -> Finding:
    if sqlite_path(settings.database_url):
        return "ok", "one, with SQLite"
    async with _open_reader(settings) as fetch:
        nodes = [NODES.read(row) for row in await fetch(SELECT_NODES)]
        leaders = [LEADERS.read(row) for row in await fetch(SELECT_LEADER)]
    if not nodes:
        return "ok", "none is running"
    leads = {each.node_id for each in leaders}
    names = [f"{n.name} {n.version}{' (leader)' * (n.id in leads)}" for n in nodes]
    return "ok", f"{len(nodes)}: {', '.join(names)}"


async def _vault(settings: Settings) -> Finding:
    directory = DataDirectory(settings.data)
    path, has_key = directory.master_key, directory.master_key.exists()
    if has_key and path.stat().st_mode & PRIVATE_UMASK:
        return "fault", f"other accounts can read {path}; run chmod 600 {path}"
    keys = directory.read_master_keys() if has_key else ()
    async with _open_reader(settings) as fetch:
        counts = await count_keys(fetch)
        if not keys:
            return _missing_key(path, sum(counts.values()))
        unreadable = await find_unreadable(fetch, Vault(*keys))
    unknown = {each for each in counts if each} - set(map(key_id_of, keys))
    if unknown or unreadable:
        names = ", ".join(sorted(each.hex() for each in unknown))
        return "fault", unreadable or f"{path} does not have these keys, which are in use: {names}"
    detail = f"{sum(counts.values()):,} encrypted secrets, key {key_id_of(keys[0]).hex()}"
    if len(keys) > 1:
        return "note", f"{detail}; run `clarion vault rotate` to finish the rotation"
    return "ok", detail


def _missing_key(path: Path, count: int) -> Finding:
    if count:
        return "fault", f"{path} is missing: restore it, or {count:,} secrets cannot be decrypted"
    return "note", f"the first start creates {path}"


async def _keys(settings: Settings) -> Finding:
    saved = DataDirectory(settings.data).first_run
    if not saved.exists():
        return "note", f"there is no {saved}; `clarion init` creates it for a new database"
    first = read_first_run(saved)
    async with _open_reader(settings) as fetch:
        if await _has_keys(fetch, first):
            return "ok", f"{saved} has keys of this database"
    advice = f"`clarion init` sets up {describe_url(settings.database_url)}"
    return "note", f"{saved} has keys of {first.database.name}, not of this one; {advice}"


async def _has_keys(fetch: Fetch, first: FirstRun) -> bool:
    """Whether saved keys are those of a database."""
    if first.database is None:
        return bool(await fetch(FIND_APP, id=first.app.id))
    return [first.database.id] == [row[0] for row in await fetch(SELECT_INSTALLATION)]


async def _audit(settings: Settings) -> Finding:
    directory, path = DataDirectory(settings.data), settings.audit_log_path
    if not directory.master_key.exists():
        return "note", f"{_NOT_CHECKED}, and master.key"
    async with _open_reader(settings, f"{_NOT_CHECKED}, and master.key") as fetch:
        keys, chain = open_audit_keys(directory), Chain(fetch)
        await load_retired_keys(fetch, keys, Vault(*directory.read_master_keys()))
        verified = await verify_chain(chain, keys)
        fault = verified.fault
        if fault is None and path is not None:
            fault = await verify_file(LogFile(path), chain, keys)
    if fault is not None:
        return "fault", f"the audit log is not as it was written: {fault}"
    detail = f"{verified.last - verified.first + 1:,} entries as they were written"
    return "ok", f"{detail}, {verified.waiting} to be linked" if verified.waiting else detail


async def _providers(settings: Settings) -> Finding:
    async with _open_reader(settings) as fetch:
        disabled = await fetch(SELECT_DISABLED)
        rows = await fetch(SELECT_ACTIVE, limit=TRIED_LIMIT + 1)
    keys = DataDirectory(settings.data).read_master_keys() if rows else ()
    active = [read_provider(row, Vault(*keys)) for row in rows]
    state, parts = describe_trials(await try_providers(active, settings))
    if disabled:
        names = [f"{channel}/{name} ({reason})" for channel, name, reason in disabled]
        state = "note" if state == "ok" else state
        parts.insert(0, f"disabled after failures: {', '.join(names)}")
    return state, "; ".join([f"{len(active)} active", *parts])


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
        return "ok", "not used"
    address = parse_address(settings.redis)
    try:
        about, exposed = await connect_once(address), await find_exposed(address)
    except FAILURES as error:
        hosts = ", ".join(f"{each.host}:{each.port}" for each in address.servers)
        return "fault", f"{hosts} cannot be used: {str(error) or type(error).__name__}"
    detail = f"{about.product} {about.version}"
    if about.primaries:
        detail += f", a Cluster with {about.primaries} primaries"
    if exposed:
        return "note", f"{detail}; {exposed} is no private address: use rediss:// and TLS there"
    return "ok", detail


async def _ports(settings: Settings) -> Finding:
    try:
        check_free(settings.addresses)
    except StartError as error:
        if _is_clarion(settings):
            return "ok", f"Clarion is running on {settings.listen}"
        return "fault", error.detail.replace("\n", " ")
    return "ok", "free"


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
        return "note", "the first start creates one"
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        return "fault", f"{path} cannot be read: {error}"
    days = (certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)).days
    return "ok" if days > 0 else "fault", f"{path} expires in {days} days"


async def _descriptors(_settings: Settings) -> Finding:
    limit = descriptors.raise_limit()
    shares = descriptors.share(limit)
    detail = f"{limit:,} files: {shares.http:,} HTTP and {shares.gateway:,} WebSocket connections"
    if limit < descriptors.LOW:
        return "note", f"{detail}; {descriptors.ADVICE}"
    return "ok", detail


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
