"""The `Dependency` port: does it answer?"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from clarion.errors import ServiceError
from clarion.nodes.port import Dependency
from tests.contract.cable import Cable
from tests.contract.conftest import depending_on, nothing_left

WITHIN_S = 2.0
# What the loop may take to come round on a busy machine.
SLACK_S = 0.5


@pytest.fixture
async def dependency(dependency_url: str) -> AsyncIterator[Dependency]:
    async with nothing_left(), depending_on(dependency_url) as dependency:
        yield dependency


@pytest.fixture(params=["emptied_database", "redis_url"], ids=["postgres", "redis"])
def server_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def cable(server_url: str) -> AsyncIterator[Cable]:
    async with nothing_left(), Cable.to(server_url) as cable:
        yield cable


@pytest.fixture
async def distant(cable: Cable) -> AsyncIterator[Dependency]:
    async with depending_on(cable.url) as distant:
        await distant.check()
        yield distant
        await cable.mend()


async def test_one_that_answers_passes(dependency: Dependency) -> None:
    (failure,) = await asyncio.gather(dependency.check(), return_exceptions=True)
    assert failure is None


async def test_many_ask_at_once(dependency: Dependency) -> None:
    checks = (dependency.check() for _ in range(50))
    assert await asyncio.gather(*checks, return_exceptions=True) == [None] * 50


async def test_one_that_is_cut_off_fails(distant: Dependency, cable: Cable) -> None:
    await cable.cut()
    with pytest.raises(ServiceError):
        await distant.check()


async def test_one_that_falls_silent_fails_within_two_seconds(
    distant: Dependency, cable: Cable
) -> None:
    cable.freeze()
    started = time.monotonic()
    with pytest.raises(ServiceError):
        await distant.check()
    assert time.monotonic() - started < WITHIN_S + SLACK_S


async def test_one_that_is_back_passes_again(distant: Dependency, cable: Cable) -> None:
    await cable.cut()
    with pytest.raises(ServiceError):
        await distant.check()
    await cable.mend()
    await distant.check()
