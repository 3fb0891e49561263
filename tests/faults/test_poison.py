"""T24: events that cannot be rendered or sent, among many others, and what an editor does then."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clarion.events.outcome_writer import TRIES
from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Connection
from tests.faults.pipeline_state import Fetch, count_deliveries, reading
from tests.faults.sizes import SIZES
from tests.lanes import is_measured

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

TYPE = "REPORT"
BATCH = 50
POISONED_EVERY = 100
# The number of lines is in the event: with most of them the text is small.
BODY = "{{ label }}{% for a in (1..lines) %}{% for b in (1..lines) %}.{% endfor %}{% endfor %}"
REPAIRED = {"body": "{{ label }}", "variables": ["label", "lines"]}
# What each kind of event does: to the templates, to the sender, to both.
KINDS = {"loop": ("delivered", 100_000), "crash": ("broken", 1), "both": ("broken", 100_000)}
GROWTH_LIMIT = 1.1
SETTLE_LIMIT_S = 60.0


class Editor:
    """An app and its editor, with one connection."""

    def __init__(self, server: ClarionServer) -> None:
        self._server = server
        self._connection = Connection(server.port)

    def close(self) -> None:
        self._connection.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self._server.api_key}"}
        data = b"" if body is None else json.dumps(body).encode()
        headers["content-type"] = "application/json"
        answer = await self._connection.ask(method, path, headers, data)
        assert answer.status < 300, answer
        return answer.json if answer.body else None

    async def set_up(self) -> None:
        await self.ask("PUT", f"/v1/types/{TYPE}", {"default_channels": ["in_app", "stub"]})
        await self.put_template({"body": BODY, "variables": ["label", "lines"]})
        for user in ("healthy", *KINDS):
            await self.heal(user, KINDS.get(user, ("delivered", 1))[0])

    async def put_template(self, template: dict[str, Any]) -> None:
        await self.ask("PUT", f"/v1/types/{TYPE}/templates/in_app", template)

    async def heal(self, user: str, stub: str = "delivered") -> None:
        await self.ask("PUT", f"/v1/users/{user}", {"attributes": {"stub": stub}})
        await self.ask("PATCH", f"/v1/users/{user}/preferences", {"quiet_hours": [False] * 24})

    async def send(self, users: list[str], first: int) -> float:
        """Send an event to each, in batches; return the seconds until the healthy ones are sent."""
        began = time.monotonic()
        drafts = [_draft(user, first + number) for number, user in enumerate(users)]
        for start in range(0, len(drafts), BATCH):
            batch = drafts[start : start + BATCH]
            answers = (await self.ask("POST", "/v1/events/batch", batch))["results"]
            assert all("event_id" in each for each in answers), answers
        await self._settled(first, users.count("healthy"))
        return time.monotonic() - began

    async def _settled(self, first: int, count: int) -> None:
        async with asyncio.timeout(SETTLE_LIMIT_S), _reading(self._server) as fetch:
            while await count_sent(fetch) < first + count:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)

    async def pass_hours(self, hours: int) -> None:
        """Move the clock, and let all be done that is due on the way."""
        for _ in range(hours):
            moved = await self.ask("POST", "/v1/test/clock", {"advance": "PT1H"})
            assert moved["is_settled"]

    async def list_dead(self) -> list[dict[str, Any]]:
        found, after = [], ""
        while True:
            page = await self.ask("GET", f"/v1/events?status=failed&limit=100{after}")
            found += page["items"]
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"


def _draft(user: str, number: int) -> dict[str, Any]:
    lines = KINDS.get(user, ("", 1))[1]
    data = {"label": f"report {number:07}", "lines": lines}
    return {"type": TYPE, "recipient": {"user_id": user}, "data": data}


def _reading(server: ClarionServer) -> Any:
    return reading(f"sqlite:///{server.data / 'clarion.db'}")


async def count_sent(fetch: Fetch) -> int:
    ((count,),) = await fetch(
        """SELECT COUNT(*) FROM deliveries
        WHERE user_id = 'healthy' AND channel = 'stub' AND status = 'delivered'"""
    )
    return int(count)


def plan(count: int) -> list[str]:
    """Return the users of so many events: of each hundred, one is poisoned, each kind in turn."""
    kinds = list(KINDS)
    return [
        kinds[number // POISONED_EVERY % len(kinds)] if number % POISONED_EVERY == 0 else "healthy"
        for number in range(count)
    ]


async def repair(editor: Editor, dead: list[dict[str, Any]]) -> None:
    """Edit what the events failed at, and replay them."""
    await editor.put_template(REPAIRED)
    for user in KINDS:
        await editor.heal(user)
    for each in dead:
        await editor.ask("POST", f"/v1/events/{each['event_id']}/replay")
    await editor.pass_hours(24)
    assert await editor.list_dead() == []


def check_dead(dead: list[dict[str, Any]], users: list[str]) -> int:
    """Return how often the dead letters were tried at most; they are the poisoned events."""
    poisoned = Counter(user for user in users if user != "healthy")
    assert Counter(each["recipient"]["user_id"] for each in dead) == poisoned
    assert all(each["last_error"] for each in dead)
    tries = {each["retry_count"] for each in dead}
    assert min(tries) >= 1
    assert max(tries) <= TRIES
    return int(max(tries))


async def test_poison_is_set_apart_and_can_be_edited_and_replayed(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    count = SIZES.poison_events
    users = plan(count)
    async with ClarionServer(tmp_path, environment={"CLARION_CLOCK": "test"}) as server:
        editor, pid = Editor(server), server.pid
        await editor.set_up()
        alone_s = await editor.send(["healthy"] * count, first=0)
        beside_s = await editor.send(users, first=count)
        await editor.pass_hours(24)
        tries = check_dead(dead := await editor.list_dead(), users)
        before = await read_deliveries(server)
        await repair(editor, dead)
        assert server.pid == pid
        editor.close()
        after = await read_deliveries(server)
    assert before["healthy", "stub", "delivered"] == count + users.count("healthy")
    assert not any(before[user, "stub", "delivered"] for user in KINDS)
    sent = Counter({"healthy": count}) + Counter(users)
    both = ("in_app", "stub")
    assert after == {(user, each, "delivered"): sent[user] for user in sent for each in both}
    figures(
        f"T24: {count:,} events, {len(dead)} of them poisoned and dead after at most {tries} "
        f"tries; the healthy ones sent in {beside_s:.2f} s, {alone_s:.2f} s without poison; all "
        "replayed after the repair"
    )
    assert not is_measured() or beside_s <= GROWTH_LIMIT * alone_s + 1.0


async def read_deliveries(server: ClarionServer) -> Counter[tuple[str, str, str]]:
    async with _reading(server) as fetch:
        return await count_deliveries(fetch)
