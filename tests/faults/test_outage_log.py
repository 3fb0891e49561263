"""A database outage under load is two lines of the log, whatever fails because of it."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.provider import headers_of
from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection
from tests.faults.pipeline_load import PlannedRequest, Senders, plan, set_up
from tests.faults.sizes import CRASH, SIZES
from tests.servers import PostgresServer

pytestmark = CRASH

CLIENTS = 20
PUSHERS = 5
TOO_MANY_REQUESTS = 429
MANY = 10_000_000  # more than is sent
LINES_LIMIT = 10
LIMIT_S = 100.0
ROUNDED_S = 0.1  # the precision of `duration_s`
SEVERE = {"warning", "error"}
ASK_EVERY_S = 0.1

Outage = Callable[[PostgresServer], None]


class Log:
    """What the server has logged since this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = path.stat().st_size

    def read_severe(self) -> list[dict[str, Any]]:
        """Return the lines at `warning` or above."""
        text = self._path.read_bytes()[self._from :].decode()
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line[-1:] == "\n"]
        return [line for line in lines if line["level"] in SEVERE]

    async def wait_for(self, event: str) -> dict[str, Any]:
        """Return the first line of an event."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for line in self.read_severe():
                    if line["event"] == event:
                        return line
                await asyncio.sleep(ASK_EVERY_S)


def list_processes(postgres: PostgresServer) -> list[int]:
    """Return the postmaster and its backends."""
    lists = Path(f"/proc/{postgres.pid}/task").glob("*/children")
    return [postgres.pid, *(int(child) for each in lists for child in each.read_text().split())]


def freeze(postgres: PostgresServer) -> None:
    """Stop all processes: connections stay open, and nothing answers."""
    for pid in list_processes(postgres):
        os.kill(pid, signal.SIGSTOP)


def thaw(postgres: PostgresServer) -> None:
    for pid in reversed(list_processes(postgres)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


OUTAGES: dict[str, tuple[Outage, Outage]] = {
    "killed": (PostgresServer.kill, PostgresServer.start),
    "stopped": (PostgresServer.stop, PostgresServer.start),
    "frozen": (freeze, thaw),
}


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


class PatientSenders(Senders):
    """Clients that also repeat what is refused because the queue is too old after the outage."""

    def _note(self, request: PlannedRequest, answer: Answer) -> None:
        if answer.status != TOO_MANY_REQUESTS:
            super()._note(request, answer)


async def register(server: ClarionServer) -> str:
    async with Connection(server.port) as connection:
        key = {
            "authorization": f"Bearer {server.api_key}",
            "content-type": "application/json",
        }
        answer = await connection.ask("POST", "/v1/devices", key, b'{"platform":"clarion"}')
    assert answer.status == 201, answer
    token: str = answer.json["token"]
    return token


async def push(server: ClarionServer, token: str) -> None:
    """Push one message after another, until cancelled, whatever is answered."""
    headers, body = headers_of(server.app), b'{"aps":{"alert":"x"}}'
    while True:
        async with Connection(server.port) as connection:
            with suppress(OSError, EOFError):
                while True:
                    await connection.ask("POST", f"/3/device/{token}", headers, body)
                    await asyncio.sleep(0.05)


@asynccontextmanager
async def under_load(server: ClarionServer) -> AsyncIterator[Senders]:
    """Send events and pushes."""
    senders = PatientSenders(server, plan(MANY, random.Random(7)))
    token = await register(server)
    async with senders.running(CLIENTS), asyncio.TaskGroup() as group:
        pushers = [group.create_task(push(server, token)) for _ in range(PUSHERS)]
        yield senders
        senders.stop()
        for each in pushers:
            each.cancel()


@pytest.mark.parametrize("how", OUTAGES)
async def test_an_outage_under_load_is_a_few_lines_that_say_what_happened_and_for_how_long(
    tmp_path: Path, postgres: PostgresServer, how: str, figures: Callable[[str], None]
) -> None:
    begin, end = OUTAGES[how]
    server = ClarionServer(tmp_path, environment={"CLARION_DATABASE": postgres.url})
    server.is_flooded = True
    async with server:
        await set_up(server)
        async with under_load(server) as senders:
            await senders.reach(200)
            log, began = Log(tmp_path / "log"), time.monotonic()
            await asyncio.to_thread(begin, postgres)
            unavailable = await log.wait_for("database_unavailable")
            await asyncio.sleep(SIZES.outage_s)  # the length of the outage
            await asyncio.to_thread(end, postgres)
            available = await log.wait_for("database_available")
            lasted_s = time.monotonic() - began
            await senders.reach(len(senders.accepted) + 200)
        lines = log.read_severe()
    events = [line["event"] for line in lines]
    figures(f"an outage of {lasted_s:.0f} s ({how}): {', '.join(events)}")
    assert len(lines) <= LINES_LIMIT, lines
    assert events.count("database_unavailable") == events.count("database_available") == 1, lines
    host = postgres.url.rpartition("@")[2].partition("/")[0]
    assert unavailable["host"] == available["host"] == host
    assert unavailable["cause"].endswith(")"), unavailable
    assert " " in unavailable["cause"]
    assert SIZES.outage_s <= available["duration_s"] <= lasted_s + ROUNDED_S
