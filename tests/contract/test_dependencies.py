"""The `Dependency` port: does it answer?"""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from clarion.errors import ServiceError
from clarion.nodes.port import Dependency
from tests.contract.conftest import depending_on, nothing_left
from tests.contract.proxy import Proxy

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
async def proxy(server_url: str) -> AsyncIterator[Proxy]:
    async with nothing_left(), Proxy.to(server_url) as proxy:
        yield proxy


@pytest.fixture
async def distant(proxy: Proxy) -> AsyncIterator[Dependency]:
    async with depending_on(proxy.url) as distant:
        await distant.check()
        yield distant
        await proxy.restore()


async def test_one_that_answers_passes(dependency: Dependency) -> None:
    (failure,) = await asyncio.gather(dependency.check(), return_exceptions=True)
    assert failure is None


async def test_many_ask_at_once(dependency: Dependency) -> None:
    checks = (dependency.check() for _ in range(50))
    assert await asyncio.gather(*checks, return_exceptions=True) == [None] * 50


async def test_one_that_is_cut_off_fails(distant: Dependency, proxy: Proxy) -> None:
    await proxy.cut()
    with pytest.raises(ServiceError):
        await distant.check()


@pytest.mark.timing
async def test_one_that_falls_silent_fails_within_two_seconds(
    distant: Dependency, proxy: Proxy
) -> None:
    proxy.freeze()
    started = time.monotonic()
    with pytest.raises(ServiceError):
        await distant.check()
    assert time.monotonic() - started < WITHIN_S + SLACK_S


async def test_one_that_is_back_passes_again(distant: Dependency, proxy: Proxy) -> None:
    await proxy.cut()
    with pytest.raises(ServiceError):
        await distant.check()
    await proxy.restore()
    await distant.check()
