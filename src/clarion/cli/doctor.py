"""`clarion doctor`: looks at everything a server needs and says what to do about what is amiss."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

import apsw
from cryptography import x509

from clarion.data_directory import DataDirectory
from clarion.errors import ClarionError, StartError
from clarion.http.listeners import check_free
from clarion.nodes.redis import RedisDependency, connect
from clarion.settings import flag_of
from clarion.store.migrations.plan import find_missing, load
from clarion.store.opening import sqlite_path
from clarion.store.postgres.engine import connect_or_explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from clarion.settings import Settings

_LEAST_FREE_BYTES = 1 << 30
_HEALTH_BYTES = 4096
_RECORDED = "SELECT version, checksum FROM migrations"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `ok` is fine, `note` is worth knowing, `fault` must be mended."""

    state: str
    what: str
    detail: str


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything; nothing is changed."""
    findings = [_python(), _folder(settings.data), _disk(settings.data)]
    checks: list[Callable[[Settings], Awaitable[Finding]]] = [_database, _redis]
    findings += [await _guard(check, settings) for check in checks]
    findings += [_ports(settings), _certificate(settings)]
    return findings


async def _guard(check: Callable[[Settings], Awaitable[Finding]], settings: Settings) -> Finding:
    try:
        return await check(settings)
    except ClarionError as error:
        return Finding("fault", check.__name__.strip("_"), error.detail)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("ok", "python", f"{version}, SQLite {apsw.sqlite_lib_version()}")


def _folder(path: Path) -> Finding:
    if not path.exists():
        return _missing_folder(path)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return Finding("fault", "data folder", f"{path} cannot be read and written by this account")
    if path.stat().st_mode & 0o077:
        return Finding("note", "data folder", f"others can look into {path}: chmod 700 {path}")
    return Finding("ok", "data folder", str(path))


def _missing_folder(path: Path) -> Finding:
    above = next(each for each in path.resolve().parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        detail = f"{path} cannot be made: {above} is not a folder that this account can write in"
        return Finding("fault", "data folder", detail)
    return Finding("note", "data folder", f"{path} is not there yet: `clarion init` makes it")


def _disk(path: Path) -> Finding:
    there = next(p for p in (path.resolve(), *path.resolve().parents) if p.exists())
    free = shutil.disk_usage(there).free
    state = "ok" if free >= _LEAST_FREE_BYTES else "fault"
    return Finding(state, "disk", f"{free / (1 << 30):.1f} GiB free, 1 GiB is the least")


async def _database(settings: Settings) -> Finding:
    path = sqlite_path(settings.database_url)
    return _sqlite(path) if path else await _postgres(settings.database_url)


def _sqlite(path: str) -> Finding:
    if not os.path.exists(path):  # noqa: PTH110 - a plain question
        return Finding("note", "database", f"{path} is not there yet: `clarion migrate` makes it")
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        missing = find_missing(load("sqlite"), connection.execute(_RECORDED).fetchall())
        connection.close()
    except apsw.Error as error:
        detail = f"cannot read {path} ({type(error).__name__}): is it Clarion's, and yours to read?"
        return Finding("fault", "database", detail)
    return _pending(f"SQLite {path}", len(missing))


async def _postgres(url: str) -> Finding:
    connection = await connect_or_explain(url)
    try:
        version = await connection.fetchval("SHOW server_version")
        if await connection.fetchval("SHOW fsync") != "on":
            return Finding(
                "fault", "database", "PostgreSQL runs with fsync=off: a crash loses data"
            )
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return Finding("note", "database", "empty: `clarion migrate` sets it up")
        missing = find_missing(load("postgres"), map(tuple, await connection.fetch(_RECORDED)))
    finally:
        await connection.close()
    return _pending(f"PostgreSQL {version}", len(missing))


def _pending(what: str, missing: int) -> Finding:
    if missing:
        return Finding(
            "note", "database", f"{what}; {missing} migrations to apply at the next start"
        )
    return Finding("ok", "database", f"{what}, up to date")


async def _redis(settings: Settings) -> Finding:
    if not settings.redis:
        return Finding("ok", "redis", "not used")
    redis = connect(settings.redis)
    try:
        await RedisDependency(redis).check()
    finally:
        await redis.aclose()
    return Finding("ok", "redis", "connected")


def _ports(settings: Settings) -> Finding:
    names = ("listen", "tls_listen", "gateway_listen", "gateway_tls_listen")
    addresses = [(flag_of(n), a) for n in names if (a := getattr(settings, n))]
    try:
        check_free(addresses)
    except StartError as error:
        if _is_clarion(settings):
            return Finding("ok", "ports", f"Clarion is running on {settings.listen}")
        return Finding("fault", "ports", error.detail.replace("\n", " "))
    return Finding("ok", "ports", "free")


def _is_clarion(settings: Settings) -> bool:
    """Ask whoever listens there whether they are Clarion."""
    connection = HTTPConnection(settings.listen.host, settings.listen.port, timeout=2)
    try:
        connection.request("GET", "/health")
        return b'"server_id"' in connection.getresponse().read(_HEALTH_BYTES)
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _certificate(settings: Settings) -> Finding:
    path = settings.tls_certificate or DataDirectory(settings.data).tls / "server.pem"
    if not path.exists():
        return Finding("note", "certificate", "made at the first start")
    try:
        certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        return Finding("fault", "certificate", f"{path} cannot be read: {error}")
    days = (certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)).days
    state = "ok" if days > 0 else "fault"
    return Finding(state, "certificate", f"{path} ends in {days} days")
