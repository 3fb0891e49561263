"""The `IdempotencyKeys` port: a response that is stored after the work."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from clarion.access.sql import Keys
from clarion.errors import IdempotencyKeyReused, StoreUnavailable
from clarion.idempotency.model import StoredResponse
from clarion.idempotency.sql import IdempotencyKeys
from clarion.push.sql.devices import Devices
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.statement import Row, Statement, Unit, Value, statement
from tests.factories import make_device, make_key, make_once, new_app_id
from tests.pipeline import PipelineStore, make_event, make_job
from tests.replacing import replace

FORGET = statement("forget_key", "DELETE FROM idempotency_keys WHERE key = :key")


@pytest.fixture
def keys(engine: Engine) -> IdempotencyKeys:
    return IdempotencyKeys(engine)


async def test_a_response_is_found_once_it_is_stored(keys: IdempotencyKeys) -> None:
    once = make_once("app")
    assert await keys.find(once) is None
    assert await keys.store(once) is None
    assert await keys.find(once) == StoredResponse(once.answer)
    assert await keys.find(replace(once, app_id="other")) is None


async def test_of_two_responses_the_first_is_kept(keys: IdempotencyKeys) -> None:
    once = make_once("app")
    await keys.store(once)
    assert await keys.store(replace(once, answer=b"second")) == StoredResponse(once.answer)


async def test_the_key_of_another_request_is_refused(keys: IdempotencyKeys) -> None:
    once = make_once("app")
    await keys.store(once)
    other = replace(once, fingerprint=b"other")
    for repeat in (keys.find, keys.store):
        with pytest.raises(IdempotencyKeyReused):
            await repeat(other)


class ForgettingEngine:
    """The engine of a store that prunes the response after it has refused a claim."""

    def __init__(self, engine: Engine, *, times: int) -> None:
        self._engine = engine
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def fetch(self, read: Statement, **values: Value) -> Sequence[Row]:
        if read.name == "select_idempotent_answer" and self._times:
            self._times -= 1
            await self._engine.write(Unit("", (FORGET.step(key=values["key"]),)))
        return await self._engine.fetch(read, **values)

    async def write(self, unit: Unit) -> Rows | None:
        """Have the key claimed before each write that is followed by forgetting it."""
        if self._times and (row := next(iter(unit.steps[0].rows))):
            await self._engine.write(Unit("", (unit.steps[0].statement.many((row,)),)))
        return await self._engine.write(unit)


def forgetting(engine: Engine, times: int = 1) -> Engine:
    return cast("Engine", ForgettingEngine(engine, times=times))


async def test_an_event_is_stored_although_its_key_is_pruned_after_it_was_refused(
    engine: Engine,
) -> None:
    """Or else the request was answered with 202, and nothing was stored."""
    store = PipelineStore(forgetting(engine), new_app_id())
    event, once = make_event(store.app_id), make_once(store.app_id)
    assert await store.events.accept([event], [make_job(event)], once) is None
    assert await store.events.get(store.app_id, event.id) == event
    assert [job.event_id for job in await store.claim()] == [event.id]


async def test_a_key_and_a_device_are_stored_although_theirs_is_pruned(engine: Engine) -> None:
    app_id = new_app_id()
    key, device = make_key(app_id), make_device(app_id=app_id)
    assert await Keys(forgetting(engine)).create(key, make_once(app_id)) is None
    assert await Keys(engine).find(key.id) == key
    assert await Devices(forgetting(engine)).add(device, make_once(app_id, key="d")) is True
    assert await Devices(engine).get(app_id, device.id) is not None


async def test_a_request_whose_key_is_claimed_again_and_again_is_an_error(engine: Engine) -> None:
    """It may be sent again; nothing says that it was done."""
    store = PipelineStore(forgetting(engine, times=9), new_app_id())
    event, once = make_event(store.app_id), make_once(store.app_id)
    with pytest.raises(StoreUnavailable):
        await store.events.accept([event], [make_job(event)], once)
    assert await store.events.get(store.app_id, event.id) is None
