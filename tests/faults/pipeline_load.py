"""Applications that say what happened, one request after another, and what they were told.

A request is repeated with its Idempotency-Key until it is accepted, as a careful application does.
"""

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection

PEOPLE = 40
BATCH = 20
TYPE = "ORDER_READY"
TOPIC = "orders"
FOLLOWERS = 10
WAIT_LIMIT_S = 120.0
ACCEPTED = 202
LEAVES_IT_OPEN = {503, 507}

Told = tuple[str, str]  # a person, and what they are told


@dataclass(frozen=True)
class Demand:
    """One request: its key, its path and body, and who should hear what of it."""

    key: str
    path: str
    body: bytes
    told: tuple[Told, ...]
    events: int


def plan(events: int, chance: random.Random) -> Iterator[Demand]:
    """Yield requests for so many events: single ones, batches, to several and to a topic."""
    made = 0
    while made < events:
        shape = chance.random()
        count = min(BATCH, events - made) if shape < 0.1 else 1
        drafts = [_draft(made + n, shape, chance) for n in range(count)]
        bodies = [body for body, _ in drafts]
        told = tuple(each for _, some in drafts for each in some)
        is_batch = shape < 0.1
        yield Demand(
            key=f"demand-{made}",
            path="/v1/events/batch" if is_batch else "/v1/events",
            body=json.dumps(bodies if is_batch else bodies[0]).encode(),
            told=told,
            events=count,
        )
        made += count


def _draft(number: int, shape: float, chance: random.Random) -> tuple[dict[str, Any], list[Told]]:
    label = f"order {number}"
    if shape > 0.98:
        recipient: dict[str, Any] = {"topic": TOPIC}
        people = [person(n) for n in range(FOLLOWERS)]
    elif shape > 0.93:
        people = [person(n) for n in chance.sample(range(PEOPLE), 5)]
        recipient = {"user_ids": people}
    else:
        people = [person(chance.randrange(PEOPLE))]
        recipient = {"user_id": people[0]}
    draft = {"type": TYPE, "recipient": recipient, "data": {"label": label}}
    return draft, [(each, label) for each in people]


def person(number: int) -> str:
    return f"person-{number}"


class Senders:
    """Clients at work until everything is accepted."""

    def __init__(self, server: ClarionServer, demands: list[Demand]) -> None:
        self.accepted: dict[str, list[str]] = {}  # the key of a demand → the ids of its events
        self.unknown: set[str] = set()
        self.server_is_up = asyncio.Event()
        self.server_is_up.set()
        self._server = server
        self._left = deque(demands)
        self._progress = asyncio.Event()

    @asynccontextmanager
    async def running(self, clients: int) -> AsyncIterator[None]:
        """Send for as long as there is something to send."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._work())
            yield

    async def reach(self, accepted: int) -> None:
        """Return when so many demands have been accepted."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(self.accepted) < accepted:
                self._progress.clear()
                await self._progress.wait()

    async def _work(self) -> None:
        async with Connection(self._server.port) as connection:
            while self._left:
                await self._send(connection, self._left.popleft())

    async def _send(self, connection: Connection, demand: Demand) -> None:
        while demand.key not in self.accepted:
            await self.server_is_up.wait()
            try:
                answer = await post(connection, self._server.api_key, demand)
            except (OSError, EOFError):
                self.unknown.add(demand.key)
                connection.close()
            else:
                self._note(demand, answer)

    def _note(self, demand: Demand, answer: Answer) -> None:
        if answer.status in LEAVES_IT_OPEN:
            self.unknown.add(demand.key)
            return
        assert answer.status == ACCEPTED, answer
        results = answer.json.get("results", [answer.json])
        self.accepted[demand.key] = [each["event_id"] for each in results]
        self._progress.set()


async def post(connection: Connection, api_key: str, demand: Demand) -> Answer:
    headers = {**_headers(api_key), "idempotency-key": demand.key}
    return await connection.ask("POST", demand.path, headers, demand.body)


def _headers(api_key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {api_key}", "content-type": "application/json"}


async def furnish(server: ClarionServer) -> None:
    """Make the type, its words, and people who may be woken at any hour."""
    async with Connection(server.port) as connection:

        async def ask(method: str, path: str, body: dict[str, Any]) -> None:
            answer = await connection.ask(
                method, path, _headers(server.api_key), json.dumps(body).encode()
            )
            assert answer.status < 300, answer

        await ask("PUT", f"/v1/types/{TYPE}", {"default_channels": ["in_app", "stub"]})
        words = {"body": "{{ label }}", "variables": ["label"]}
        await ask("PUT", f"/v1/types/{TYPE}/templates/in_app", words)
        for number in range(PEOPLE):
            path = f"/v1/users/{person(number)}"
            await ask("PUT", path, {"attributes": {"stub": "delivered"}})
            await ask("PATCH", f"{path}/preferences", {"quiet_hours": [False] * 24})
            if number < FOLLOWERS:
                await ask("PUT", f"{path}/topics/{TOPIC}", {})
