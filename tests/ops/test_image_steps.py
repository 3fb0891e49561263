"""The steps of the Dockerfile, run in a Debian that is made for it: no registry, no daemon.

It takes minutes, so it runs at night (`make faults`), as root, where debootstrap is installed.
"""

# ruff: noqa: S607 - the programs are those of the distribution

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.sending import wait_until
from tests.ops.operations import OPS, ROOT
from tests.processes import free_port

pytestmark = pytest.mark.timeout(1800)
# The distribution of the images that the Dockerfile is based on, and what they have of Python.
BASE = ["--variant=minbase", "--include=python3-venv,ca-certificates", "bookworm"]
START_LIMIT_S = 120.0
# So that pip in there finds its packages where pip out here does, and believes the same hosts.
TRUSTED = "/etc/ssl/certs/ca-certificates.crt"
PIP = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
PIP["PIP_CERT"] = TRUSTED


def find_reason_to_skip() -> str | None:
    if os.environ.get("CLARION_TEST_SIZE") != "night":
        return "needs CLARION_TEST_SIZE=night: it takes minutes"
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return "needs root, and debootstrap: apt-get install debootstrap"
    return None


def read_steps() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = (OPS / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [
        (name, rest.strip()) for name, _, rest in (each.partition(" ") for each in lines if each)
    ]


class Build:
    """Follows the Dockerfile; each stage is a folder."""

    def __init__(self, base: Path, folder: Path) -> None:
        self._base, self._folder = base, folder
        self.stages: dict[str, Path] = {}
        self.root = base
        self.variables: dict[str, str] = {}
        self.told: dict[str, str] = {}

    def run(self, command: list[str], user: str = "0:0") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["chroot", f"--userspec={user}", self.root, *command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def environment(self) -> dict[str, str]:
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {"PATH": path, **PIP, **self.variables}

    def follow(self, name: str, rest: str) -> None:
        match name:
            case "FROM":
                stage = rest.partition(" AS ")[2] or "image"
                self.root = self.stages[stage] = self._folder / stage
                self.variables = {}
                subprocess.run(["cp", "-a", self._base, self.root], check=True)
            case "RUN":
                done = self.run(["sh", "-c", rest])
                assert done.returncode == 0, done.stdout + done.stderr
            case "ENV":
                path = self.environment["PATH"]
                for each in shlex.split(rest):
                    key, _, value = each.partition("=")
                    self.variables[key] = value.replace("$PATH", path)
            case "COPY":
                self._copy(rest)
            case _:
                self.told[name] = rest

    def _copy(self, rest: str) -> None:
        source, target = [each for each in rest.split() if not each.startswith("--")]
        stage = re.search(r"--from=(\w+)", rest)
        origin = self.stages[stage[1]] / source.lstrip("/") if stage else ROOT / source
        there = self.root / target.lstrip("/")
        place = there / origin.name if target.endswith("/") else there
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", origin, place], check=True)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    if reason := find_reason_to_skip():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    base = folder / "base"
    subprocess.run(["debootstrap", *BASE, base], check=True, stdout=subprocess.DEVNULL)
    (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for each in ("/etc/resolv.conf", TRUSTED):
        shutil.copy(each, base / each.lstrip("/"))
    for path in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"):
        if path.exists():
            shutil.copy(path, base / "etc/pip.conf")
    made = Build(base, folder)
    for step in read_steps():
        made.follow(*step)
    return made


@pytest.fixture
def running(build: Build, tmp_path: Path) -> Iterator[tuple[Build, dict[str, str]]]:
    """The command of the image, on a file system that can only be read but for data and /tmp."""
    ports = {name: str(free_port()) for name in ("LISTEN", "GATEWAY_LISTEN", "TLS_LISTEN")}
    listen = {f"CLARION_{name}": f"127.0.0.1:{port}" for name, port in ports.items()}
    user = build.told["USER"]
    command = [*json.loads(build.told["ENTRYPOINT"]), *json.loads(build.told["CMD"])]
    script = (
        f"mount --bind {build.root} {build.root} && mount -o remount,ro,bind {build.root}"
        f" && mount -t proc proc {build.root}/proc && mount -t tmpfs tmpfs {build.root}/tmp"  # noqa: S108
        f" && mount -t tmpfs -o uid=10001,gid=10001,mode=0700 tmpfs {build.root}/var/lib/clarion"
        f" && exec chroot --userspec={user} {build.root} {shlex.join(command)}"
    )
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script],
            env={**build.environment, **listen},
            stdout=log,
            stderr=log,
        )
        try:
            yield build, ports
        finally:
            process.terminate()
            process.wait(60)


def test_the_image_starts_without_privileges_and_its_health_check_passes(
    running: tuple[Build, dict[str, str]],
) -> None:
    build, ports = running
    check = json.loads(build.told["HEALTHCHECK"].partition("CMD ")[2])
    check = [each.replace("8080", ports["LISTEN"]) for each in check]

    def is_healthy() -> bool | None:
        return build.run(check, build.told["USER"]).returncode == 0 or None

    assert wait_until(is_healthy, START_LIMIT_S)


def test_the_account_of_the_image_owns_nothing_but_its_data(build: Build) -> None:
    user = build.told["USER"]
    find = ["find", "/", "-xdev", "-writable", "-not", "-type", "l", "-not", "-path", "/proc/*"]
    found = build.run(find, user).stdout.splitlines()
    allowed = ("/dev", "/tmp", "/var/tmp", "/run/lock", "/var/lib/clarion")  # noqa: S108
    assert [each for each in found if not each.startswith(allowed)] == []
