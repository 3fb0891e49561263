"""Clients that send events, one request after another, and the answers that they got.

A request is repeated with its Idempotency-Key until it is accepted, as a careful client does.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from tests.faults.http_client import Answer, Connection

USERS = 40
BATCH = 20
TYPE = "ORDER_READY"
TOPIC = "orders"
FOLLOWERS = 10
WAIT_LIMIT_S = 120.0
ACCEPTED = 202
UNKNOWN_OUTCOME = {503, 507}
RETRY_AFTER_S = 0.05

Receipt = tuple[str, str]  # a user, and the text of their notification


class Served(Protocol):
    """A server with an app: where to send its requests, and its key."""

    @property
    def port(self) -> int: ...

    @property
    def api_key(self) -> str: ...


@dataclass(frozen=True)
class PlannedRequest:
    """One request: its key, its path and body, and who should receive which notification."""

    key: str
    path: str
    body: bytes
    receipts: tuple[Receipt, ...]
    events: int


def plan(events: int, chance: random.Random) -> Iterator[PlannedRequest]:
    """Yield requests for so many events: single ones, batches, to several and to a topic."""
    made = 0
    while made < events:
        shape = chance.random()
        count = min(BATCH, events - made) if shape < 0.1 else 1
        drafts = [_draft(made + n, shape, chance) for n in range(count)]
        bodies = [body for body, _ in drafts]
        receipts = tuple(each for _, some in drafts for each in some)
        is_batch = shape < 0.1
        yield PlannedRequest(
            key=f"request-{made}",
            path="/v1/events/batch" if is_batch else "/v1/events",
            body=json.dumps(bodies if is_batch else bodies[0]).encode(),
            receipts=receipts,
            events=count,
        )
        made += count


def _draft(
    number: int, shape: float, chance: random.Random
) -> tuple[dict[str, Any], list[Receipt]]:
    label = f"order {number}"
    if shape > 0.98:
        recipient: dict[str, Any] = {"topic": TOPIC}
        users = [user_of(n) for n in range(FOLLOWERS)]
    elif shape > 0.93:
        users = [user_of(n) for n in chance.sample(range(USERS), 5)]
        recipient = {"user_ids": users}
    else:
        users = [user_of(chance.randrange(USERS))]
        recipient = {"user_id": users[0]}
    draft = {"type": TYPE, "recipient": recipient, "data": {"label": label}}
    return draft, [(each, label) for each in users]


def user_of(number: int) -> str:
    return f"user-{number}"


class Senders:
    """Clients at work until everything is accepted, or until they are stopped."""

    def __init__(self, server: Served, requests: Iterable[PlannedRequest]) -> None:
        self.begun: list[PlannedRequest] = []
        self.accepted: dict[str, list[str]] = {}  # the key of a request → the ids of its events
        self.unknown: set[str] = set()
        self.statuses: Counter[int] = Counter()
        self.server_is_up = asyncio.Event()
        self.server_is_up.set()
        self._server = server
        self._left = iter(requests)
        self._progress = asyncio.Event()

    @asynccontextmanager
    async def running(self, clients: int) -> AsyncIterator[None]:
        """Send for as long as there is something to send."""
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._work())
            yield

    async def reach(self, accepted: int) -> None:
        """Return when so many requests have been accepted."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            while len(self.accepted) < accepted:
                self._progress.clear()
                await self._progress.wait()

    def stop(self) -> None:
        """Begin nothing new."""
        self._left = iter(())

    async def _work(self) -> None:
        async with Connection(self._server.port) as connection:
            while request := next(self._left, None):
                self.begun.append(request)
                await self._send(connection, request)

    async def _send(self, connection: Connection, request: PlannedRequest) -> None:
        while request.key not in self.accepted:
            await self.server_is_up.wait()
            try:
                answer = await post(connection, self._server.api_key, request)
            except (OSError, EOFError):
                self.unknown.add(request.key)
                connection.close()
            else:
                self._note(request, answer)
            if request.key not in self.accepted:
                await asyncio.sleep(RETRY_AFTER_S)

    def _note(self, request: PlannedRequest, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        if answer.status in UNKNOWN_OUTCOME:
            self.unknown.add(request.key)
            return
        assert answer.status == ACCEPTED, answer
        results = answer.json.get("results", [answer.json])
        self.accepted[request.key] = [each["event_id"] for each in results]
        self._progress.set()


async def post(connection: Connection, api_key: str, request: PlannedRequest) -> Answer:
    headers = {**_headers(api_key), "idempotency-key": request.key}
    return await connection.ask("POST", request.path, headers, request.body)


def _headers(api_key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {api_key}", "content-type": "application/json"}


async def set_up(server: Served) -> None:
    """Create the type, its template, and users without quiet hours."""
    async with Connection(server.port) as connection:

        async def ask(method: str, path: str, body: dict[str, Any]) -> None:
            answer = await connection.ask(
                method, path, _headers(server.api_key), json.dumps(body).encode()
            )
            assert answer.status < 300, answer

        await ask("PUT", f"/v1/types/{TYPE}", {"default_channels": ["in_app", "stub"]})
        template = {"body": "{{ label }}", "variables": ["label"]}
        await ask("PUT", f"/v1/types/{TYPE}/templates/in_app", template)
        for number in range(USERS):
            path = f"/v1/users/{user_of(number)}"
            await ask("PUT", path, {"attributes": {"stub": "delivered"}})
            await ask("PATCH", f"{path}/preferences", {"quiet_hours": [False] * 24})
            if number < FOLLOWERS:
                await ask("PUT", f"{path}/topics/{TOPIC}", {})
