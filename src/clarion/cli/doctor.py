"""`clarion doctor`: check everything a server needs, and say how to fix what is wrong."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Literal

import apsw
from cryptography import x509

from clarion import descriptors
from clarion.cli.flags import SettingFlags, load_settings
from clarion.data_directory import DataDirectory
from clarion.errors import ClarionError, StartError
from clarion.http.listeners import check_free
from clarion.nodes.redis import connect, ping
from clarion.settings import Settings
from clarion.store.migrations.plan import RECORDED, find_missing, load
from clarion.store.opening import sqlite_path
from clarion.store.postgres.engine import connect_or_explain

_MIN_FREE_BYTES = 1 << 30
_HEALTH_BYTES = 4096

# A `note` is worth knowing, a `fault` must be fixed.
Finding = tuple[Literal["ok", "note", "fault"], str]


async def doctor(**settings: SettingFlags) -> int:
    loaded = load_settings(settings)
    findings = {what: await _run(check, loaded) for what, check in _CHECKS.items()}
    for what, (state, detail) in findings.items():
        print(f"{state:6} {what:12} {detail}")
    return int(any(state == "fault" for state, _ in findings.values()))


async def _run(check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        return await check(settings)
    except ClarionError as error:
        return "fault", error.detail


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
    if not Path(path).exists():
        return "note", f"{path} does not exist yet; `clarion migrate` creates it"
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        missing = find_missing(load("sqlite"), connection.execute(RECORDED).fetchall())
        connection.close()
    except apsw.Error as error:
        return "fault", f"{path} is not a readable Clarion database ({type(error).__name__})"
    return _migrations(f"SQLite {path}", len(missing))


async def _postgres(url: str) -> Finding:
    connection = await connect_or_explain(url)
    try:
        version = await connection.fetchval("SHOW server_version")
        if await connection.fetchval("SHOW fsync") != "on":
            return "fault", "PostgreSQL runs with fsync=off: a crash can lose data"
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return "note", "the database is empty; `clarion migrate` creates the tables"
        missing = find_missing(load("postgres"), map(tuple, await connection.fetch(RECORDED)))
    finally:
        await connection.close()
    return _migrations(f"PostgreSQL {version}", len(missing))


def _migrations(database: str, missing: int) -> Finding:
    if missing:
        return "note", f"{database}; the next start applies {missing} migrations"
    return "ok", f"{database}, up to date"


async def _redis(settings: Settings) -> Finding:
    if not settings.redis:
        return "ok", "not used"
    redis = connect(settings.redis)
    try:
        await ping(redis)
    finally:
        await redis.aclose()
    return "ok", "connected"


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
    "redis": _redis,
    "ports": _ports,
    "certificate": _certificate,
    "descriptors": _descriptors,
}
