"""The largest batches of events let the event loop go on: nothing blocks it for 50 ms."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import pytest

from clarion.access.model import AppCaller, Scope
from clarion.catalog.model import Channel
from clarion.channels.stub import StubSender
from clarion.clock import SystemClock
from clarion.events.api.intake import EventEndpoint
from clarion.events.pipeline import Pipeline
from clarion.store.engine import Engine
from tests.contract.test_fairness import TYPE, running, set_up
from tests.factories import new_app_id
from tests.pipeline import build_pipeline, finish_sending
from tests.stopwatch import unit_s

USERS = 10_000
LONGEST = 40
# Enough for what is in memory at one time.
WORK_S = 2.0
ROUNDS = 3


def drafts_of(count: int, recipient: dict[str, Any], data: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": TYPE.type, "recipient": recipient, "data": data} for _ in range(count)]


# Each is about as large as a body may be, 1 MiB.
EVERYONE = {"user_ids": [f"user-{n}" for n in range(USERS)]}
BATCHES = {
    "many": [
        each
        for n in range(1_000)
        for each in drafts_of(1, {"user_id": f"user-{n}"}, {"text": "x" * 900})
    ],
    "recipients": drafts_of(8, EVERYONE, {}),
    "data": drafts_of(16, {"user_id": "user-1"}, {"items": [{"k": n} for n in range(5_500)]}),
}


class BlockProbe:
    """Measures the processor time that the other tasks take in each round of the loop."""

    longest_s = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        task = asyncio.ensure_future(self._measure())
        yield
        task.cancel()
        await asyncio.wait([task])

    async def _measure(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - before)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """The server collects rarely, and not among the objects that stay; a test run has many."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class BatchRequest:
    """As much of a request as the endpoint looks at."""

    def __init__(self, app_id: str, body: bytes) -> None:
        self.scope: dict[str, Any] = {"headers": []}
        self.caller = AppCaller(app_id=app_id, key_id="key", scopes=frozenset(Scope))
        self._body = body

    async def json(self) -> bytes:
        return self._body


async def measure(pipeline: Pipeline, app_id: str, batch: str) -> tuple[float, float]:
    """Return the longest blocks while a batch is accepted, and while it is worked on."""
    endpoint = EventEndpoint(pipeline.intake, None)  # type: ignore[arg-type]
    request: Any = BatchRequest(app_id, json.dumps(BATCHES[batch]).encode())
    accepting, working = BlockProbe(), BlockProbe()
    async with accepting.running():
        response = await endpoint.accept_batch(request)
    statuses = {each["status"] for each in json.loads(response.body)["results"]}
    async with running(pipeline), working.running():
        await asyncio.sleep(WORK_S)
    await finish_sending()
    assert statuses == {"pending"}
    return accepting.longest_s, working.longest_s


@pytest.mark.timing
@pytest.mark.parametrize("batch", BATCHES)
async def test_a_batch_blocks_the_loop_only_briefly(engine: Engine, batch: str) -> None:
    """Neither while it is accepted nor while it is worked on.

    In the median of several rounds: a machine that is paused counts as work of whatever runs.
    """
    app_id = new_app_id()
    await set_up(engine, app_id, USERS if batch == "recipients" else 1_000)
    pipeline = build_pipeline(engine, SystemClock(), {Channel.STUB: StubSender()})
    rounds = [await measure(pipeline, app_id, batch) for _ in range(ROUNDS)]
    longest = {"accepting": median(x for x, _ in rounds), "working": median(x for _, x in rounds)}
    assert max(longest.values()) < LONGEST * unit_s(), rounds
