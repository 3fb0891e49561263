"""h2spec: the one on the PATH, or built with Go.

CI builds it while it checks the code: `python3 -m tests.faults.http.h2spec FOLDER`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
NAME = "h2spec"
BUILD_LIMIT_S = 300


class NotBuiltError(Exception):
    """There is no h2spec, and none can be built; the text says why."""


def find_h2spec(folder: Path) -> str:
    """Return the path of the program; if there is none on the PATH, build it in a folder."""
    return shutil.which(NAME) or build_h2spec(folder)


def build_h2spec(folder: Path) -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        raise NotBuiltError("there is neither")
    given = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    # Without C, of which it needs nothing, it is built in less time.
    environment = given | {"GOBIN": str(folder), "CGO_ENABLED": "0"}
    built = subprocess.run(
        [go, "install", MODULE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    if built.returncode:
        raise NotBuiltError(f"it cannot be built: {built.stderr[-200:]}")
    return str(folder / NAME)


if __name__ == "__main__":
    find_h2spec(Path(sys.argv[1]))
