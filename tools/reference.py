"""Writes the reference pages that are taken from the code: settings and errors.

`python tools/reference.py` writes them, `--check` only says whether they are up to date.
"""

import sys
from http import HTTPStatus
from pathlib import Path

from clarion.http.docs import advise, error_kinds
from clarion.settings import describe

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"

SETTINGS = """# Settings

Every setting is a flag of `clarion serve`, an environment variable, and a line in a TOML file given
by `--config FILE` (or `CLARION_CONFIG`). If several name it, the flag wins over the environment,
and the environment over the file. For a secret, `NAME_FILE` names a file that holds the value, as
in `CLARION_DATABASE_FILE=/run/secrets/database`. All faults are reported at once, and a misspelt
name is a fault. This page is written by `tools/reference.py`.

In the TOML file the names are those of the flags with underscores: `tls_listen = "0.0.0.0:8443"`.

| flag | environment | default | meaning |
|---|---|---|---|
"""

ERRORS = """# Errors

Every error of the API is `application/problem+json` with `type`, `title`, `status`, `detail`,
`code`, `errors` (one entry a field: `field`, `reason`) and `request_id`. The `code` is stable:
match on it, not on the words. A running server shows this list at `/docs/errors`. This page is
written by `tools/reference.py`.
"""


def settings_page() -> str:
    rows = [
        f"| `{flag} {metavar}` | `{variable}` | {_shown(default)} | {doc} |"
        for flag, metavar, variable, default, doc in describe()
    ]
    return SETTINGS + "\n".join(rows) + "\n"


def _shown(default: str) -> str:
    return f"`{default}`" if default else "(empty)"


def errors_page() -> str:
    parts = [ERRORS]
    for kind in error_kinds():
        status = f"{kind.status} {HTTPStatus(kind.status).phrase}"
        parts.append(
            f"\n## {kind.code}\n\n{status}. {(kind.__doc__ or '').strip()} {advise(kind)}\n"
        )
    return "".join(parts)


PAGES = {"settings.md": settings_page, "errors.md": errors_page}


def main() -> int:
    stale = [name for name, page in PAGES.items() if _read(name) != page()]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is out of date: run python tools/reference.py")
        return 1 if stale else 0
    for name in stale:
        (FOLDER / name).write_text(PAGES[name]())
        print(f"wrote docs/reference/{name}")
    return 0


def _read(name: str) -> str:
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
