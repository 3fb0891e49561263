"""The `IdempotencyKeys` port: a response that is stored after the work."""

import pytest

from clarion.errors import IdempotencyKeyReused
from clarion.idempotency.model import StoredResponse
from clarion.idempotency.port import IdempotencyKeys
from clarion.idempotency.sql import SqlIdempotencyKeys
from clarion.store.engine import Engine
from tests.factories import make_once
from tests.replacing import replace


@pytest.fixture
def keys(engine: Engine) -> IdempotencyKeys:
    return SqlIdempotencyKeys(engine)


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
