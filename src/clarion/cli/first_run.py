"""What `first-run.json` holds: the first keys of an installation, and its URLs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from clarion.errors import StartError
from clarion.http.strangers import is_loopback
from clarion.settings import Settings
from clarion.settings.types import ListenAddress

# A server that listens on all addresses is called at the loopback address.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - looked up, not listened on


class AdminSetup(msgspec.Struct):
    """How the first administrator is created; null if there is one, and in the file."""

    setup_url: str | None = None


class AppCredentials(msgspec.Struct):
    """Everything an application needs to call Clarion."""

    id: str
    bundle_id: str
    api_key: str
    user_secret: str
    team_id: str
    key_id: str
    provider_key_path: str


class TlsFiles(msgspec.Struct):
    """The certificate authority that clients must trust."""

    ca_path: str


class Urls(msgspec.Struct):
    api: str
    tls: str | None
    gateway: str | None
    admin: str


class KeysDatabase(msgspec.Struct):
    """The database that keys are for: its id and its readable name."""

    id: str
    name: str


class FirstRun(msgspec.Struct):
    """The content of `first-run.json`, which `clarion init --json` prints."""

    admin: AdminSetup
    app: AppCredentials
    tls: TlsFiles
    urls: Urls
    database: KeysDatabase


def read_first_run(path: Path) -> FirstRun:
    """Read the file; `StartError` if it cannot be read or is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=FirstRun)
    except OSError as error:
        raise StartError(f"Cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise StartError(
            f"{path} is damaged: {error}. Restore it as `clarion init` wrote it."
        ) from error


def to_json(fields: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(fields), indent=2)


def urls_of(settings: Settings) -> Urls:
    """Return the URLs at which the configured listeners can be called."""
    api = f"http://{_reachable(settings.listen)}"
    return Urls(
        api=api,
        tls=f"https://{_reachable(settings.tls_listen)}" if settings.tls_listen else None,
        gateway=f"ws://{_reachable(settings.gateway_listen)}" if settings.gateway_listen else None,
        admin=f"{api}/admin",
    )


def admin_url_of(settings: Settings) -> str:
    """Return the URL for administrators: over TLS, except on this machine."""
    if settings.public_url:
        return settings.public_url
    urls = urls_of(settings)
    is_local = is_loopback(_reachable(settings.listen).host)
    return urls.api if is_local or urls.tls is None else urls.tls


def _reachable(address: ListenAddress) -> ListenAddress:
    return dataclasses.replace(address, host=_LOOPBACK.get(address.host, address.host))
