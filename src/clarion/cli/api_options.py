"""Which server a command calls, and with which key."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from cyclopts import Parameter

from clarion.cli.flags import load_settings
from clarion.cli.remote_server import find_server
from clarion.client import Clarion


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


def connect_api(
    server: ApiOptions | None, settings: dict[str, str]
) -> AbstractContextManager[Clarion]:
    """Return a client of the API."""
    options = server or ApiOptions()
    found = find_server(load_settings(settings), url=options.url, api_key=options.api_key)
    return found.connect_api()
