"""The push gateway of Matrix: it needs no credential, so an address may guess only so often."""

import json
from ipaddress import ip_network
from typing import Any

import pytest

from clarion.errors import TooManyRequests
from clarion.http.asgi import Request, Response
from clarion.http.strangers import Peers
from clarion.nodes.memory import MemoryLimits
from clarion.push.webpush.matrix import REJECTED_PER_MINUTE, MatrixGateway
from tests.unit.push.webpush.test_intake import URL, Service

KEYS = 50
MINUTE_MS = 60_000
PEERS = Peers()


class Homeserver:
    """Sends notifications from an address."""

    def __init__(
        self, service: Service, address: str = "192.0.2.7", peers: Peers = PEERS, **scope: Any
    ) -> None:
        self.limits = MemoryLimits(service.clock)
        self.gateway = MatrixGateway(
            service.endpoints,
            service.intake,
            limits=self.limits,
            clock=service.clock,
            peers=peers,
        )
        self.address = address
        self._scope = scope

    async def notify(self, *keys: str) -> list[str]:
        devices = [{"pushkey": key} for key in keys]
        body = json.dumps({"notification": {"devices": devices}}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        scope = {"scheme": "http", "client": (self.address, "50000"), "headers": []} | self._scope
        post = self.gateway.routes[1].endpoint
        answer = await post(Request(scope, receive, "r", None, 10_000))
        assert isinstance(answer, Response)
        rejected: list[str] = json.loads(answer.body)["rejected"]
        return rejected

    async def guess(self) -> None:
        """Send push keys that lead nowhere, as many as are allowed."""
        for number in range(REJECTED_PER_MINUTE // KEYS):
            keys = [f"{URL}/push/{number}-{key}" for key in range(KEYS)]
            assert await self.notify(*keys) == keys


@pytest.fixture
async def service() -> Service:
    service = Service()
    await service.devices.add(service.gateway.device)
    return service


async def test_an_address_that_guesses_is_refused_for_the_rest_of_the_minute(
    service: Service,
) -> None:
    homeserver = Homeserver(service)
    await homeserver.guess()
    reads = service.gateway.store.reads
    with pytest.raises(TooManyRequests) as refused:
        await homeserver.notify(f"{URL}/push/another")
    assert service.gateway.store.reads == reads
    assert 0 < refused.value.retry_after_s <= 60
    homeserver.address = "192.0.2.8"
    assert await homeserver.notify(f"{URL}/push/another") == [f"{URL}/push/another"]
    homeserver.address = "192.0.2.7"
    service.clock.milliseconds += MINUTE_MS
    assert await homeserver.notify(f"{URL}/push/another") == [f"{URL}/push/another"]


async def test_addresses_of_one_network_are_one(service: Service) -> None:
    homeserver = Homeserver(service, "2001:db8::1")
    await homeserver.guess()
    homeserver.address = "2001:db8::ffff"
    with pytest.raises(TooManyRequests):
        await homeserver.notify(f"{URL}/push/another")


async def test_push_keys_that_are_in_use_are_not_counted(service: Service) -> None:
    endpoint, url = service.endpoints.propose(service.gateway.device, vapid_key=None, label=None)
    await service.endpoints.add(endpoint)
    homeserver = Homeserver(service)

    def count() -> int:
        now = service.clock.now()
        return homeserver.limits.read("matrix:192.0.2.7", window_s=60, now=now)

    assert (await homeserver.notify(url), count()) == ([], 0)
    assert (await homeserver.notify(url, f"{url}x"), count()) == ([f"{url}x"], 1)


async def test_behind_a_tcp_proxy_nobody_is_counted_with_others(service: Service) -> None:
    peers = Peers((ip_network("192.0.2.0/24"),))
    homeserver = Homeserver(service, peers=peers, scheme="https")
    await homeserver.guess()
    assert await homeserver.notify(f"{URL}/push/another") == [f"{URL}/push/another"]
