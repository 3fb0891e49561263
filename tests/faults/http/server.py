"""A server with all its listeners, and what it uses while it is attacked."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation

MIB = 1 << 20
PAUSE_S = 0.02


@dataclass(frozen=True)
class Target:
    """The running server that a test attacks."""

    installation: Installation
    api_key: str

    @property
    def port(self) -> int:
        return self.installation.port

    @property
    def app(self) -> Asker:
        return Asker(self.port, self.api_key)

    @property
    def pid(self) -> int:
        assert self.installation.process is not None
        return self.installation.process.pid

    @property
    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError

    @property
    def cpu_s(self) -> float:
        """Processor time of the server so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def connections(self) -> int:
        """How many connections its HTTP listeners hold."""
        text = Asker(self.port).get("/metrics").body.decode()
        line = next(
            line for line in text.splitlines() if line.startswith("clarion_http_connections ")
        )
        return int(float(line.split()[1]))


@dataclass
class Healthy:
    """The requests of a client that behaves, one after the other."""

    answered: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.answered / max(1, self.answered + self.failed)

    def __str__(self) -> str:
        total = self.answered + self.failed
        return f"{self.answered} of {total} healthy requests, slowest {self.slowest_s * 1e3:.0f} ms"


@contextmanager
def healthy_requests(target: Target) -> Iterator[Healthy]:
    """Let another client go on as usual, on connections of its own, and count its answers."""
    counts, ended = Healthy(), threading.Event()

    def ask() -> None:
        while not ended.wait(PAUSE_S):
            began = time.monotonic()
            try:
                status = target.app.get("/v1/caller").status
            except (OSError, HTTPException) as error:
                status, fault = 0, repr(error)
            else:
                fault = f"status {status}"
            counts.slowest_s = max(counts.slowest_s, time.monotonic() - began)
            if status == 200:
                counts.answered += 1
            else:
                counts.failed += 1
                counts.faults.append(fault)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield counts
    finally:
        ended.set()
        thread.join()


@contextmanager
def watched_memory(target: Target) -> Iterator[list[int]]:
    """Note how far the memory of the server grows; the last entry is the largest growth."""
    before, ended, growth = target.rss_bytes, threading.Event(), [0]

    def look() -> None:
        while not ended.wait(PAUSE_S):
            with suppress(OSError):
                growth.append(max(growth[-1], target.rss_bytes - before))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield growth
    finally:
        ended.set()
        thread.join()
