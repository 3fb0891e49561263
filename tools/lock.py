"""Update the lock files from pyproject.toml, with hashes and without host names."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "pyproject.toml"
RUNTIME = "requirements.lock"
DEV = "requirements-dev.lock"
# Apart from the others: it needs pydantic, which servers under test would load if it were there.
GENERATOR = "tests/clients/generator.lock"
# Programs and schemas by which the files in `ops` are checked.
OPS = "tests/ops/tools.lock"
# Litestar makes up examples for its OpenAPI document with these, 20 MB of them. Ours has its own.
UNUSED = ("faker", "polyfactory")
# What a server never imports, 16 MB: the test client of Litestar, the command lines of Litestar and
# Granian, and reStructuredText and source code in a terminal. Tools for tests need some.
# `tests/e2e/test_release.py` imports every module and prints every help without them.
UNUSED_BY_SERVERS = (
    *("httpx", "httpcore", "h11", "certifi"),
    *("click", "colorama", "rich-click"),
    *("pygments", "rich-rst"),
)


def main() -> None:
    more = sys.argv[1:]
    compile_lock(RUNTIME, PROJECT, *map(leave_out, UNUSED_BY_SERVERS), *more)
    # Constrained by the first file, so that tests use the versions that users install.
    compile_lock(DEV, PROJECT, "--group", "dev", "--constraint", RUNTIME, *more)
    compile_lock(GENERATOR, "--group", "generator", *more)
    compile_lock(OPS, "--group", "ops", *more)


def compile_lock(name: str, *options: str) -> None:
    """`--universal` covers every platform and every supported Python."""
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", "--output-file", name, "--quiet"]
    contents = ["--universal", "--python-version", "3.11", "--generate-hashes"]
    comments = ["--custom-compile-command", "make lock", "--annotation-style", "line"]
    left_out = map(leave_out, UNUSED)
    subprocess.run([*command, *contents, *comments, *left_out, *options], cwd=ROOT, check=True)
    refuse_hosts(ROOT / name)
    print(f"Updated {name}.")


def leave_out(package: str) -> str:
    return f"--no-emit-package={package}"


def refuse_hosts(lock: Path) -> None:
    """A lock file that names a host works only where that host can be reached."""
    lines = lock.read_text().splitlines()
    if any("://" in line for line in lines):
        lock.unlink()
        sys.exit(
            f"{lock.name} contained a host name and was deleted. Unset the index options of uv."
        )


if __name__ == "__main__":
    main()
