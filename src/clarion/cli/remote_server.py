"""The server that a command calls: its URLs, keys, and the certificates to trust."""

from __future__ import annotations

import ssl
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from cyclopts import Parameter
from msgspec.structs import astuple

from clarion.cli.first_run import AppCredentials, FirstRun, Urls, read_first_run, urls_of
from clarion.cli.flags import load_settings
from clarion.cli.server_connection import connect
from clarion.client import Clarion
from clarion.errors import StartError
from clarion.settings import Settings
from clarion.system.data_directory import DataDirectory

GATEWAY_PATH = "/v1/gateway"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """The server to call.

    Parameters
    ----------
    url
        The URL of the server, like http://localhost:8080.
    api_key
        The API key of the app. Default: the key in first-run.json.

    """

    url: str = ""
    api_key: str = ""


@dataclass(frozen=True, kw_only=True)
class RemoteServer:
    """A server as its data directory, the settings and the flags describe it."""

    directory: DataDirectory
    first: FirstRun | None
    api_url: str
    push_url: str
    gateway_url: str
    given_key: str
    is_own: bool

    @property
    def api_key(self) -> str:
        return self.given_key or self.app.api_key

    @property
    def app(self) -> AppCredentials:
        """The demo app; `StartError` without `first-run.json`."""
        if self.first is None:
            raise StartError(
                f"{self.directory.first_run} with the keys does not exist. `clarion init` creates "
                "it; --data chooses another directory."
            )
        return self.first.app

    @property
    def device_file(self) -> Path:
        """The file in which `clarion device listen` saves its devices, one for each server."""
        server = "" if self.is_own else "-" + quote(urlsplit(self.api_url).netloc, safe="")
        return self.directory.path / f"device-listen{server}.json"

    @property
    def provider_key(self) -> bytes:
        """The private key that signs provider tokens, as PEM."""
        named = Path(self.app.provider_key_path)
        # The data directory may have been moved since `clarion init`.
        path = named if named.exists() else self.directory.provider_keys / named.name
        try:
            return path.read_bytes()
        except OSError as error:
            raise StartError(f"Cannot read {path}: {error.strerror}.") from error

    def connect_api(self) -> AbstractContextManager[Clarion]:
        """Return a client of the API, with the API key."""
        origin = self._key_origin
        return connect(self.api_url, self.api_key, authority=self._authority, key_origin=origin)

    def connect_push(self) -> AbstractContextManager[Clarion]:
        """Return a client of the APNs endpoint, without credentials."""
        return connect(self.push_url, authority=self._authority)

    @property
    def _authority(self) -> bytes | None:
        """The development authority of the data directory, which is trusted as well."""
        path = self.directory.tls / "ca.pem"
        return path.read_bytes() if path.exists() else None

    @property
    def _key_origin(self) -> str:
        if self.given_key or self.first is None:
            return ""
        return f"The key in {self.directory.first_run} is for {self.first.database.name}."

    def tls_context(self) -> ssl.SSLContext:
        """Trust the system's authorities and the development authority of the data directory."""
        context = ssl.create_default_context()
        if authority := self._authority:
            context.load_verify_locations(cadata=authority.decode())
        return context


def find_server(
    settings: Settings, *, url: str = "", gateway_url: str = "", api_key: str = ""
) -> RemoteServer:
    """Describe the server; flags win over settings, and settings over `first-run.json`."""
    directory = DataDirectory(settings.data)
    first = read_first_run(directory.first_run) if directory.first_run.exists() else None
    urls = _choose_urls(settings, first)
    # No URL, or text that is none, has no address either.
    is_own = _address_of(url) in {"", _address_of(urls.api), _address_of(urls.tls or "")}
    gateway_url = gateway_url or (urls.gateway or "" if is_own else _derive_gateway(url))
    return RemoteServer(
        directory=directory,
        first=first,
        api_url=(url or urls.api).rstrip("/"),
        push_url=(url or urls.tls or urls.api).rstrip("/"),
        gateway_url=gateway_url.rstrip("/").removesuffix(GATEWAY_PATH),
        given_key=api_key,
        is_own=is_own,
    )


def connect_api(
    server: ApiOptions | None, settings: dict[str, str]
) -> AbstractContextManager[Clarion]:
    """Return a client of the API."""
    options = server or ApiOptions()
    found = find_server(load_settings(settings), url=options.url, api_key=options.api_key)
    return found.connect_api()


def _choose_urls(settings: Settings, first: FirstRun | None) -> Urls:
    """Return the URLs of the settings, or of `first-run.json` where a setting has its default."""
    configured = urls_of(settings)
    saved = first.urls if first else configured
    urls = zip(*map(astuple, (configured, urls_of(Settings()), saved)), strict=True)
    return Urls(*(old if given == default else given for given, default, old in urls))


def _address_of(url: str) -> str:
    return urlsplit(url).netloc.replace("localhost", "127.0.0.1")


def _derive_gateway(url: str) -> str:
    """Return where the gateway of another server is, unless --gateway-url says otherwise.

    Behind TLS there is a proxy that serves both; a server itself has it on the next port, as 8081
    is that after 8080.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        return f"wss://{parts.netloc}"
    host, _, port = parts.netloc.rpartition(":")
    return f"ws://{host}:{int(port) + 1}" if port.isdigit() else f"ws://{parts.netloc}"
