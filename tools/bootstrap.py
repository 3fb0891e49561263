"""Create .venv from the lock file: `python3 tools/bootstrap.py runtime|dev`.

Standard library only, and it must parse on Python 3.8, so that an older Python prints a sentence
and not a traceback.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

OLDEST = (3, 11)
NAMES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
LOCKS = {"runtime": "requirements.lock", "dev": "requirements-dev.lock"}

# A test tool of a few hundred lines of Python, of which no wheel is published.
FROM_SOURCE = "http-ece"

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "clarion-installed.json"

# If .venv is activated, this is its own Python, which cannot rebuild it.
PYTHON = getattr(sys, "_base_executable", "") if sys.prefix == str(VENV) else sys.executable

# The first lines are shell code and, to Python, a string. Unlike a plain "#!" line, this works
# with spaces and long paths.
CONSOLE_SCRIPT = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys

from clarion.cli.main import main

sys.exit(main())
"""


class Failed(Exception):
    """Ends the installation; its text is the line that is printed."""


def main() -> int:
    extras = sys.argv[1] if len(sys.argv) > 1 else "runtime"
    try:
        use_new_enough_python()
        with_only_one_at_a_time(extras)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command again to finish the installation.", file=sys.stderr)
        return 130
    return 0


def use_new_enough_python() -> None:
    """If this Python is too old, continue with the first one on the PATH that is new enough."""
    if sys.version_info >= OLDEST:
        return
    for name in NAMES:
        if is_new_enough(name):
            os.execvp(name, [name, *sys.argv])
    found = sys.version.split()[0]
    raise Failed(
        f"Clarion needs Python 3.11 or newer; this is {found}. Install it, then run make again."
    )


def is_new_enough(name: str) -> bool:
    # Run it: a version manager's shim can be on the PATH without a Python behind it.
    question = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    return bool(shutil.which(name)) and succeeds([name, "-c", question])


def with_only_one_at_a_time(extras: str) -> None:
    """`make run` and `make test` in two terminals must not write into the same .venv at once."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not is_installed(extras):
            install(extras)
    finally:
        os.close(folder)


def is_installed(extras: str) -> bool:
    installed = usable_stamp().get("locks", {})
    return bool(installed.get(extras) == lock_hash(extras))


def usable_stamp() -> dict[str, Any]:
    """Return the stamp of the last installation; empty if it is for another Python or folder.

    The stamp is deleted before an installation and written after it, so without a stamp no
    installation is complete.
    """
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    fits = all(stamp.get(key) == value for key, value in identity().items())
    return stamp if fits and VENV_PYTHON.exists() else {}


def identity() -> dict[str, Any]:
    """What a .venv depends on: a moved folder or another Python needs a new one."""
    return {"root": str(ROOT), "python": "{}.{}".format(*sys.version_info)}


def lock_hash(extras: str) -> str:
    # Includes this file, so that a change to the installation installs again.
    text = (ROOT / LOCKS[extras]).read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(text).hexdigest()


def install(extras: str) -> None:
    announce(extras)
    upgrading = bool(usable_stamp())
    STAMP.unlink(missing_ok=True)
    if not upgrading:
        # An incomplete installation is replaced, not repaired.
        remove_venv()
        make_venv()
    install_packages(extras)
    install_clarion()
    compile_clarion()
    write_stamp(extras)


def announce(extras: str) -> None:
    what = "Clarion" if extras == "runtime" else "Clarion and its test tools"
    say(f"Installing {what} into .venv (about 30 s the first time) ...")


def remove_venv() -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    if VENV.exists() or not os.access(ROOT, os.W_OK):
        raise Failed(
            "Cannot replace the folder .venv. Check its owner and permissions, then run make again."
        )


def make_venv() -> None:
    """Try several ways to create a .venv, the simplest first."""
    ways = (plain_venv, uv_venv, venv_for_system_pip, venv_after_apt)
    if not any(way() for way in ways):
        raise Failed(f"Clarion needs Python's venv module. {venv_advice()}, then run make again.")


def plain_venv() -> bool:
    return succeeds([PYTHON, "-m", "venv", "--clear", str(VENV)])


def uv_venv() -> bool:
    return has_uv() and succeeds(["uv", "venv", "--clear", "--python", PYTHON, str(VENV)])


def venv_for_system_pip() -> bool:
    """Debian's python3-pip can install into a .venv that has no pip of its own."""
    create = [PYTHON, "-m", "venv", "--clear", "--without-pip", str(VENV)]
    return system_pip_works() and succeeds(create)


def venv_after_apt() -> bool:
    """Debian and Ubuntu package the venv module separately; install it if no password is needed."""
    rights = apt_rights()
    if rights is None:
        return False
    say(f"Installing {venv_package()} with apt-get ...")
    fetch = [*rights, "apt-get", "install", "-y", "-q", "--no-install-recommends", venv_package()]
    # A new machine has no package lists yet; on others the update is not needed.
    if not succeeds(fetch) and succeeds([*rights, "apt-get", "update", "-q"]):
        succeeds(fetch)
    return plain_venv()


def apt_rights() -> list[str] | None:
    """The prefix for apt-get, or None if it needs a password."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    return ["sudo", "-n"] if shutil.which("sudo") and succeeds(["sudo", "-n", "true"]) else None


def venv_package() -> str:
    return "python{}.{}-venv".format(*sys.version_info)


def venv_advice() -> str:
    if shutil.which("apt-get"):
        return f"Install it (sudo apt-get install {venv_package()})"
    return "Install your system's package for it, or put uv on the PATH"


def install_packages(extras: str) -> None:
    lock = str(ROOT / LOCKS[extras])
    # The lock has every package. Without `--no-deps`, pip would choose versions all the same: of
    # a package with an extra the newest, which has no hash here.
    options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    if extras == "dev":
        options += ["--no-binary", FROM_SOURCE]
    options += ["-r", lock]
    if subprocess.run([*installer(), *options], check=False).returncode != 0:
        raise Failed(
            "The packages could not be installed. Fix the error above, then run make again."
        )


def installer() -> list[str]:
    """The command that installs packages: the pip of .venv, or uv, or the system's pip."""
    pip_install = ["--disable-pip-version-check", "--no-input", "install"]
    if (VENV / "bin" / "pip").exists():
        return [str(VENV_PYTHON), "-m", "pip", *pip_install]
    if has_uv():
        return ["uv", "pip", "install", "--compile-bytecode", "--python", str(VENV_PYTHON)]
    return [PYTHON, "-m", "pip", "--python", str(VENV_PYTHON), *pip_install]


def has_uv() -> bool:
    return bool(shutil.which("uv")) and succeeds(["uv", "--version"])


def system_pip_works() -> bool:
    # Older pips do not know --python and fail here.
    return succeeds([PYTHON, "-m", "pip", "--python", PYTHON, "--version"])


def install_clarion() -> None:
    """Add src/ to .venv with a path file, and write the `clarion` script.

    `pip install --editable` does the same, but downloads and runs a build tool, which can fail.
    The path is relative, because a path file is read in the locale's encoding and the folder may
    have any name.
    """
    version = "python{}.{}".format(*sys.version_info)
    packages = VENV / "lib" / version / "site-packages"
    source = os.path.relpath(ROOT / "src", packages)
    (packages / "clarion.pth").write_text(source + "\n", encoding="utf-8")
    script = VENV / "bin" / "clarion"
    script.write_text(CONSOLE_SCRIPT.format(python=shlex.quote(str(VENV_PYTHON))), encoding="utf-8")
    script.chmod(0o755)


def compile_clarion() -> None:
    """Compile src/, as pip does with packages: otherwise the first start takes twice as long.

    So does each one if the account that runs the server may not write here.
    """
    succeeds([str(VENV_PYTHON), "-m", "compileall", "-q", str(ROOT / "src")])


def write_stamp(extras: str) -> None:
    # The lock file for development also contains the runtime packages, in the same versions.
    done = ("runtime", "dev") if extras == "dev" else ("runtime",)
    stamp = {**identity(), "locks": {name: lock_hash(name) for name in done}}
    unfinished = STAMP.with_suffix(".tmp")
    unfinished.write_text(json.dumps(stamp), encoding="utf-8")
    unfinished.replace(STAMP)


def succeeds(command: list[str]) -> bool:
    """Run a command without output and return whether it succeeded."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = subprocess.DEVNULL
    result = subprocess.run(
        command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, check=False
    )
    return result.returncode == 0


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
