"""`clarion env`: shell variables for trying the API."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.remote_server import RemoteServer, find_server

_FUNCTION = """api() {
  curl -sS -X "$1" -H "Authorization: Bearer $KEY" \\
    ${3+-H "Content-Type: application/json" -d "$3"} "$CLARION$2"
}"""


def env(**settings: SettingFlags) -> None:
    print(render(find_server(load_settings(settings))))


def render(server: RemoteServer) -> str:
    """Return the lines for `eval`: URLs, the key and the app of first-run.json, and `api`."""
    variables = {
        "CLARION": server.api_url,
        "GATEWAY": server.gateway_url,
        "APP": server.app.id,
        "KEY": server.api_key,
        "DATA": str(server.directory.path.resolve()),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join((*lines, _path(), _FUNCTION))


def _path() -> str:
    """Put `clarion` on the PATH, if it was called by its path."""
    folder = shlex.quote(str(Path(sys.argv[0]).resolve().parent))
    return f'case ":$PATH:" in *:{folder}:*) ;; *) PATH={folder}:$PATH ;; esac'
