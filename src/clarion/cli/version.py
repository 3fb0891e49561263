"""`clarion version`: the installed version, for bug reports."""

from __future__ import annotations

import platform
from importlib import resources

import apsw
import msgspec

from clarion import __version__
from clarion.cli.flags import Switch
from clarion.cli.printing import print_result


class _Build(msgspec.Struct):
    """The build information of a wheel, written by `tools/build_hook.py`."""

    commit: str


class _Version(msgspec.Struct):
    version: str
    commit: str | None
    python: str
    sqlite: str
    platform: str


def version(*, json: Switch = False) -> None:
    """Print the version.

    Parameters
    ----------
    json
        Print it as JSON.

    """
    found = _Version(
        version=__version__,
        commit=_find_commit(),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        platform=platform.platform(),
    )
    origin = f"commit {found.commit}" if found.commit else "from a source folder"
    machine = f"Python {found.python}, SQLite {found.sqlite}, {found.platform}"
    print_result(found, f"clarion {found.version} ({origin})\n{machine}", json=json)


def _find_commit() -> str | None:
    file = resources.files("clarion") / "build.json"
    return msgspec.json.decode(file.read_bytes(), type=_Build).commit if file.is_file() else None
