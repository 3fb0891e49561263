"""Clients that create API keys, one after another, and the answers that they got.

A client repeats a request with its Idempotency-Key until it is accepted, as a careful client
does; while the server is down, it waits. It revokes each key at once, for an app can have a
thousand.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection

PAGE = 100
WAIT_LIMIT_S = 60.0


class Load:
    """Clients at work until they are stopped."""

    def __init__(self, server: ClarionServer) -> None:
        self.accepted: dict[str, str] = {}  # what was answered 201: label → id
        self.unknown: set[str] = set()  # what once got no answer, or one that leaves it open
        self.statuses: Counter[int] = Counter()
        self.server_is_up = asyncio.Event()
        self.server_is_up.set()
        self._server = server
        self._progress = asyncio.Event()
        self._is_stopping = False

    @asynccontextmanager
    async def running(self, clients: int) -> AsyncIterator[None]:
        """Work for as long as the block lasts, then finish what was begun."""
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self._work(number))
            yield
            self._is_stopping = True

    async def reach(self, accepted: int) -> None:
        """Return when so many keys have been accepted."""
        await self._until(lambda: len(self.accepted) >= accepted)

    async def see(self, status: int, times: int = 1) -> None:
        """Return when an answer of that status has come so many times more."""
        times += self.statuses[status]
        await self._until(lambda: self.statuses[status] >= times)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not holds():
                self._progress.clear()
                await self._progress.wait()

    async def _work(self, client: int) -> None:
        async with Connection(self._server.port) as connection:
            number = 0
            while not self._is_stopping:
                number += 1
                await self._make_key(connection, f"{client}-{number}")

    async def _make_key(self, connection: Connection, label: str) -> None:
        while label not in self.accepted:
            await self.server_is_up.wait()
            try:
                answer = await ask_for_key(connection, self._server.api_key, label)
            except (OSError, EOFError):
                self.unknown.add(label)
                connection.close()
            else:
                self._note(label, answer)
        await self._revoke(connection, self.accepted[label])

    async def _revoke(self, connection: Connection, key_id: str) -> None:
        """Revoke a key, or leave it if that fails: a few may be left."""
        try:
            answer = await revoke_key(connection, self._server.api_key, key_id)
        except (OSError, EOFError):
            connection.close()
        else:
            assert answer.status in {200, 503, 507}, answer
            self.statuses.update({answer.status} - {200})
            self._progress.set()

    def _note(self, label: str, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        self._progress.set()
        if answer.status == 201:
            self.accepted[label] = answer.json["id"]
        elif answer.status in {503, 507}:
            self.unknown.add(label)
        else:
            raise AssertionError(answer)


async def ask_for_key(connection: Connection, api_key: str, label: str) -> Answer:
    headers = {
        "authorization": f"Bearer {api_key}",
        "content-type": "application/json",
        "idempotency-key": label,
    }
    body = json.dumps({"label": label, "scopes": ["keys:read"]}).encode()
    return await connection.ask("POST", "/v1/keys", headers, body)


async def revoke_key(connection: Connection, api_key: str, key_id: str) -> Answer:
    headers = {"authorization": f"Bearer {api_key}"}
    return await connection.ask("DELETE", f"/v1/keys/{key_id}", headers)


async def list_keys(server: ClarionServer) -> list[tuple[str, str]]:
    """Return label and id of every key, read page by page as a client would."""
    found: list[tuple[str, str]] = []
    headers = {"authorization": f"Bearer {server.api_key}"}
    after: str | None = ""
    async with Connection(server.port) as connection:
        while after is not None:
            path = f"/v1/keys?limit={PAGE}" + (f"&after={after}" if after else "")
            page = (await connection.ask("GET", path, headers)).json
            found += [(item["label"], item["id"]) for item in page["items"]]
            after = page["next"]
    return found


async def find_faults(server: ClarionServer, accepted: dict[str, str]) -> list[str]:
    """Return what was accepted and is not there exactly once, as it was answered."""
    keys = await list_keys(server)
    times = Counter(label for label, _ in keys)
    stored = dict(keys)
    faults = [f"{label} is there {count} times" for label, count in times.items() if count > 1]
    for label, key_id in accepted.items():
        if stored.get(label) != key_id:
            faults.append(f"{label} was answered as {key_id} and is stored as {stored.get(label)}")
    return faults
