"""What a command knows of the server that it talks to: addresses, keys, whom to trust."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clarion.cli.first_run import FirstRun, Urls, urls_of
from clarion.data_directory import DataDirectory
from clarion.errors import StartError
from clarion.settings import Settings

if TYPE_CHECKING:
    from clarion.cli.first_run import AppCard

GATEWAY_PATH = "/v1/gateway"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A server as seen from its data folder, or from what the flags say."""

    folder: DataDirectory
    first: FirstRun | None
    api_url: str
    push_url: str
    gateway_url: str
    given_key: str

    @property
    def api_key(self) -> str:
        """The API key to call with."""
        return self.given_key or self.app.api_key

    @property
    def app(self) -> AppCard:
        """The app of the first run."""
        if self.first is None:
            msg = (
                f"There is no {self.folder.first_run} with keys to use. `clarion init` makes it; "
                "--data names another folder."
            )
            raise StartError(msg)
        return self.first.app

    @property
    def device_file(self) -> Path:
        """Where `clarion device listen` remembers who it was."""
        return self.folder.path / "device-listen.json"

    @property
    def provider_key(self) -> bytes:
        """The key with which the app's provider signs, as PEM."""
        named = Path(self.app.provider_key_path)
        # The folder may have been moved since its first run.
        path = named if named.exists() else self.folder.provider_keys / named.name
        return _read(path)

    def trust(self) -> ssl.SSLContext:
        """Return whom to trust: whom this machine trusts, and the development authority."""
        context = ssl.create_default_context()
        authority = self.folder.tls / "ca.pem"
        if authority.exists():
            context.load_verify_locations(authority)
        return context


def find_installation(
    settings: Settings, *, url: str = "", gateway_url: str = "", api_key: str = ""
) -> Installation:
    """Put together what the flags, the settings and the first run say, in this order."""
    folder = DataDirectory(settings.data)
    first = _read_first_run(folder.first_run) if folder.first_run.exists() else None
    urls = _choose_urls(settings, first)
    return Installation(
        folder=folder,
        first=first,
        api_url=(url or urls.api).rstrip("/"),
        push_url=(url or urls.tls or urls.api).rstrip("/"),
        gateway_url=(gateway_url or urls.gateway or "").rstrip("/").removesuffix(GATEWAY_PATH),
        given_key=api_key,
    )


def _read_first_run(path: Path) -> FirstRun:
    try:
        return msgspec.json.decode(_read(path), type=FirstRun)
    except msgspec.DecodeError as error:
        msg = f"{path} is not as `clarion init` wrote it: {error}"
        raise StartError(msg) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"Cannot read {path}: {error.strerror}."
        raise StartError(msg) from error


def _choose_urls(settings: Settings, first: FirstRun | None) -> Urls:
    """Return what the settings say, and where they say nothing, what the first run said."""
    said, usual = urls_of(settings), urls_of(Settings())
    then = first.urls if first else said
    names = ("api", "tls", "gateway", "admin")
    return Urls(*(getattr(then if _same(said, usual, n) else said, n) for n in names))


def _same(one: Urls, other: Urls, name: str) -> bool:
    return bool(getattr(one, name) == getattr(other, name))
