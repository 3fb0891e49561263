"""A server under measurement: started, waited for, sampled and stopped as a process of its own."""

import http.client
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO
from urllib.parse import urlsplit

from tests.processes import free_port

ASK_EVERY_S = 0.02
ANSWER_WITHIN_S = 1.0
TAIL_BYTES = 2_000
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class ServerError(Exception):
    """A server did not start, or did not stop; the text holds the end of what it printed."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a server and its child processes hold and have used up so far."""

    rss_bytes: int
    cpu_s: float


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def usage(self) -> Usage:
        """Sample the server; raises ServerError when it has ended."""
        if self._process.poll() is not None:
            raise self._error(f"ended with {self._process.returncode}")
        shares = [share for pid in _family(self.pid) if (share := _usage(pid))]
        return Usage(
            rss_bytes=sum(share.rss_bytes for share in shares),
            cpu_s=sum(share.cpu_s for share in shares),
        )

    def wait_until_ready(self, url: str, within_s: float) -> None:
        """Ask until there is an HTTP answer, whatever its status."""
        deadline = monotonic() + within_s
        while not _answers(url):
            if self._ended_within(ASK_EVERY_S):
                raise self._error(f"ended with {self._process.returncode} before it was ready")
            if monotonic() > deadline:
                raise self._error(f"did not answer {url} within {within_s:g} s")

    def stop(self, within_s: float = 10.0) -> None:
        """Send SIGTERM; kill a server that does not end, and raise ServerError."""
        self._process.terminate()
        if not self._ended_within(within_s):
            self._process.kill()
            self._process.wait()
            raise self._error(f"did not stop within {within_s:g} s of SIGTERM")

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _error(self, what: str) -> ServerError:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - TAIL_BYTES))
        tail = self._log.read().decode(errors="replace").strip()
        return ServerError(f"{self._process.args!r} {what}; it printed:\n{tail}")


@contextmanager
def serving(
    command: Sequence[str],
    ready_url: str,
    *,
    within_s: float = 60.0,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[Server]:
    """Run a server for as long as the block lasts; `env` is added to our own environment."""
    # Granian shares its port with whoever listens there: half the load would go astray unnoticed.
    if _answers(ready_url):
        raise ServerError(f"something else answers {ready_url} already")
    with ExitStack() as stack:
        # A file, not a pipe: a server that prints much must not come to a halt for lack of readers.
        log = stack.enter_context(tempfile.TemporaryFile())
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **(env or {})}, cwd=cwd
        )
        server = Server(process, log)
        stack.callback(server.stop)
        server.wait_until_ready(ready_url, within_s)
        yield server


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that no outgoing connection is given meanwhile."""
    return [free_port() for _ in range(count)]


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.netloc)
    try:
        connection.request("GET", parts.path or "/")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def _connection(scheme: str, place: str) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(place, timeout=ANSWER_WITHIN_S)
    # The server is our own child, and its certificate often made for this run only.
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(place, timeout=ANSWER_WITHIN_S, context=anyone)


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time that a process and its children have used."""
    return sum(share.cpu_s for each in _family(pid) if (share := _usage(each)))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # The thread may be gone by now.
            for child in children.read_text().split():
                yield from _family(int(child))


def _usage(pid: int) -> Usage | None:
    proc = Path(f"/proc/{pid}")
    try:
        # The name, second in stat, may hold spaces and brackets; what follows its end may not.
        after_name = (proc / "stat").read_text().rpartition(")")[2].split()
        resident_pages = int((proc / "statm").read_text().split()[1])
    except OSError:  # A child that has ended since.
        return None
    ticks = int(after_name[11]) + int(after_name[12])
    return Usage(rss_bytes=resident_pages * PAGE_BYTES, cpu_s=ticks / TICKS_A_SECOND)
