"""T37: one key sent many times at once, through a kill of the server, has one effect."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection
from tests.faults.pipeline_load import (
    ACCEPTED,
    RETRY_AFTER_S,
    TYPE,
    PlannedRequest,
    post,
    set_up,
    user_of,
)
from tests.faults.pipeline_state import count_jobs, read_state, reading
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

AT_ONCE = 100
REUSED = 422
SEED = 20_261_118
DRAIN_LIMIT_S = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> ClarionServer:
    if request.param == "sqlite":
        return ClarionServer(tmp_path)
    url = request.getfixturevalue("postgres_database")
    return ClarionServer(tmp_path, environment={"CLARION_DATABASE": url})


def url_of(server: ClarionServer, request: pytest.FixtureRequest) -> str:
    if request.node.callspec.params["server"] == "sqlite":
        return f"sqlite:///{server.data / 'clarion.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


def plan(number: int, label: str = "") -> PlannedRequest:
    user = user_of(number % 40)
    data = {"label": label or f"order {number}"}
    draft = {"type": TYPE, "recipient": {"user_id": user}, "data": data}
    body = json.dumps(draft).encode()
    return PlannedRequest(
        key=f"key-{number}",
        path="/v1/events",
        body=body,
        receipts=((user, data["label"]),),
        events=1,
    )


class Clients:
    """Connections that send the same request at the same moment."""

    def __init__(self, server: ClarionServer) -> None:
        self.server = server
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.unanswered = 0
        self._connections = [Connection(server.port) for _ in range(AT_ONCE)]

    def close(self) -> None:
        for each in self._connections:
            each.close()

    async def send(self, request: PlannedRequest) -> list[Answer]:
        return await asyncio.gather(*(self._send(each, request) for each in self._connections))

    async def _send(self, connection: Connection, request: PlannedRequest) -> Answer:
        while True:
            await self.is_up.wait()
            try:
                answer = await post(connection, self.server.api_key, request)
            except (OSError, EOFError):
                connection.close()
                self.unanswered += 1
            else:
                if answer.status in {ACCEPTED, REUSED}:
                    return answer
            await asyncio.sleep(RETRY_AFTER_S)


async def drain(url: str) -> None:
    async with asyncio.timeout(DRAIN_LIMIT_S), reading(url) as fetch:
        while await count_jobs(fetch):  # noqa: ASYNC110 - the work goes on in another process
            await asyncio.sleep(RETRY_AFTER_S)


async def kill_sometimes(clients: Clients, ended: asyncio.Event) -> None:
    """Kill the server while requests are under way, with the same ones sent again after it."""
    chance = random.Random(SEED)
    for _ in range(SIZES.idempotency_kills):
        await asyncio.sleep(chance.uniform(0.2, 0.8))
        if ended.is_set():
            return
        clients.is_up.clear()
        await clients.server.kill()
        await clients.server.start()
        clients.is_up.set()


def read_ids(answers: list[Answer]) -> set[str]:
    assert {each.status for each in answers} == {ACCEPTED}, answers
    return {each.json["event_id"] for each in answers}


async def send_all(clients: Clients, requests: list[PlannedRequest]) -> set[str]:
    """Send each request many times at once; return the events, one for each."""
    events: set[str] = set()
    for request in requests:
        ids = read_ids(await clients.send(request))
        assert len(ids) == 1, "one key made several events"
        assert not ids & events, "two keys made one event"
        events |= ids
    return events


async def test_a_key_has_one_effect(
    server: ClarionServer, request: pytest.FixtureRequest, figures: Callable[[str], None]
) -> None:
    requests, ended = [plan(number) for number in range(SIZES.idempotency_keys)], asyncio.Event()
    async with server:
        await set_up(server)
        url, clients = url_of(server, request), Clients(server)
        killing = asyncio.create_task(kill_sometimes(clients, ended))
        events = await send_all(clients, requests)
        ended.set()
        await killing
        # Again when all is done, and with another body.
        assert await send_all(clients, requests[:3]) <= events
        refused = await clients.send(plan(0, "another order"))
        assert {(each.status, each.json["code"]) for each in refused} == {
            (REUSED, "idempotency_key_reused")
        }
        clients.close()
        await drain(url)
    async with reading(url) as fetch:
        state = await read_state(fetch)
    figures(
        f"T37 on {url.partition(':')[0]}: {len(requests):,} keys x {AT_ONCE} at once, "
        f"{len(state.events):,} events, {sum(state.received.values()):,} notifications, "
        f"{clients.unanswered:,} requests unanswered and repeated"
    )
    assert state.events.keys() == events
    assert dict(state.received) == {each.receipts[0]: 1 for each in requests}


async def test_the_key_of_another_app_is_another(tmp_path: Path) -> None:
    """A tenant cannot learn, or take, what another one has sent with the same key."""
    async with ClarionServer(tmp_path) as server:
        await set_up(server)
        clients, first = Clients(server), server.app
        mine = read_ids(await clients.send(plan(0)))
        server.app = server.create_app("com.example.other")
        await set_up(server)
        others = read_ids(await clients.send(plan(0)))
        clients.close()
        assert len(mine) == len(others) == 1
        assert mine.isdisjoint(others)
        assert first["api_key"] != server.api_key
