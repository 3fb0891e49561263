"""What a server costs that has nothing to do: its start, its memory, and what is installed."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

from bench.deployment import HOST
from bench.process import Server, free_ports, serving
from bench.table import Row, size

ROUNDS = 5
ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==", re.MULTILINE)
BLOCK_BYTES = 512
UNKNOWN_PATH = "/unknown"


class Start(NamedTuple):
    """One start: the time and the processor time until it is ready, and the memory when idle."""

    ready_s: float
    cpu_s: float
    rss_bytes: int


def measure(seconds: float) -> Iterator[Row]:
    """Measure both by turns; how long does not matter here."""
    del seconds
    port, gateway_port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "clarion"]
        data = [f"--data={folder}", "--log-level=warning"]
        subprocess.run([*ours, "init", *data], check=True, stdout=subprocess.DEVNULL)
        addresses = [f"--listen={HOST}:{port}", f"--gateway-listen={HOST}:{gateway_port}"]
        serve = [*ours, "serve", *data, *addresses, "--tls-listen=off"]
        hello = [sys.executable, "-m", "bench.bare", str(port)]
        rounds = [(_start(hello, port), _start(serve, port)) for _ in range(ROUNDS)]
    bare, server = map(_take_median, zip(*rounds, strict=True))
    yield _row("start of Granian with an empty handler until ready", bare, "")
    installed = f", {size(_measure_installed())} installed"
    yield _row("start of the server until ready", server, installed, bare)


def _start(command: Sequence[str], port: int) -> Start:
    began_at = monotonic()
    with serving(command, f"http://{HOST}:{port}/ready", cwd=ROOT) as server:
        ready_s, cpu_s = monotonic() - began_at, server.usage().cpu_s
        return Start(ready_s, cpu_s, _measure_idle(server, port))


def _measure_idle(server: Server, port: int) -> int:
    """Return the memory when all of the API is built.

    A path that nobody has is looked up in the framework, so its answer waits for that. Without a
    credential, one below `/v1/` would be refused before.
    """
    connection = HTTPConnection(HOST, port)
    connection.request("GET", UNKNOWN_PATH)
    connection.getresponse().read()
    connection.close()
    return server.usage().rss_bytes


def _take_median(starts: Sequence[Start]) -> Start:
    ready_s, cpu_s, rss_bytes = zip(*starts, strict=True)
    return Start(median(ready_s), median(cpu_s), int(median(rss_bytes)))


def _row(what: str, start: Start, more: str, bare: Start | None = None) -> Row:
    return Row(
        what=what,
        p50_s=start.ready_s,
        cpu_s=start.cpu_s,
        ratio=start.ready_s / bare.ready_s if bare else None,
        note=f"{size(start.rss_bytes)} of memory when idle{more}",
    )


def _measure_installed() -> int:
    """Return the size on disk of our source and of the packages in the lock file for users."""
    packages = PINNED.findall((ROOT / "requirements.lock").read_text())
    ours = (path for folder in ("src", "clients/js") for path in (ROOT / folder).rglob("*"))
    return sum(_measure_package(name) for name in packages) + sum(map(_measure_file, ours))


def _measure_package(name: str) -> int:
    try:
        found = distribution(name)
    except PackageNotFoundError:  # one for another system
        return 0
    return sum(_measure_file(Path(str(found.locate_file(each)))) for each in found.files or ())


def _measure_file(path: Path) -> int:
    return path.lstat().st_blocks * BLOCK_BYTES if path.is_file() else 0
