"""Renew both lock files from pyproject.toml, with hashes and without the name of any host."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = "requirements.lock"
DEV = "requirements-dev.lock"


def main() -> None:
    more = sys.argv[1:]
    compile_lock(RUNTIME, *more)
    # Constrained by the first, so that tests run on the very versions that people run.
    compile_lock(DEV, "--group", "dev", "--constraint", RUNTIME, *more)


def compile_lock(name: str, *options: str) -> None:
    """`--universal` covers every platform and every Python from the oldest supported one on."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "pyproject.toml", "--output-file", name, "--quiet"]
    contents = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    wording = ["--custom-compile-command", "make lock", "--annotation-style", "line"]
    subprocess.run([*command, *contents, *wording, *options], cwd=ROOT, check=True)
    refuse_hosts(ROOT / name)
    print(f"{name} is renewed.")


def refuse_hosts(lock: Path) -> None:
    """A lock that names a host would tie every user to the machine it was made on."""
    lines = lock.read_text().splitlines()
    if any("://" in line for line in lines):
        lock.unlink()
        sys.exit(
            f"{lock.name} named a package host and was removed; unset the index options of uv."
        )


if __name__ == "__main__":
    main()
