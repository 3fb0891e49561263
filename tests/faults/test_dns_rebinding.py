"""A name server that alternates between a public address and this machine gets no request in.

127.0.0.2 and 127.0.0.3 play public addresses: they are allowed, 127.0.0.1 is not. The second of
them does not answer, so that another address of the same name would be tried. The name in the URL
is `localhost`, so that an HTTP client that resolved it itself would reach the private listener.
"""

import asyncio
import random
from ipaddress import ip_network

from clarion.channels.http_clients import HttpClients, NotConnected, ProviderRequest
from clarion.channels.targets import TargetRefused, Targets
from tests.faults.sizes import CRASH, SIZES
from tests.unit.channels.http_peers import OK, answering, listening

PUBLIC, SILENT, PRIVATE = "127.0.0.2", "127.0.0.3", "127.0.0.1"
ANSWERS = [
    [PUBLIC],
    [PRIVATE],
    [PUBLIC, PRIVATE],
    [PRIVATE, PUBLIC],
    [SILENT, PUBLIC],
    [SILENT, PRIVATE],
    ["::1"],
    [PUBLIC, "::ffff:127.0.0.1"],
    [],
]
# Requests at once share a lookup: more of them would make fewer lookups.
AT_ONCE = 2

pytestmark = CRASH


async def test_a_name_server_that_changes_its_answers_reaches_nothing_private() -> None:
    chance = random.Random(1)
    given = iter(lambda: chance.choice([*ANSWERS, [PUBLIC]]), None)
    targets = Targets([ip_network("127.0.0.2/31")], lambda _host: next(given), valid_s=0)
    clients = HttpClients(targets)
    counts = {"answered": 0, "refused": 0, "not connected": 0}

    async def try_often(url: str, times: int) -> None:
        for _ in range(times):
            try:
                await clients.post(ProviderRequest(url, {}, b"x", timeout_s=10))
                counts["answered"] += 1
            except TargetRefused:
                counts["refused"] += 1
            except NotConnected:
                counts["not connected"] += 1

    async with listening(answering(OK), address=PRIVATE) as private:
        url = f"http://localhost:{private.port}/"
        async with listening(answering(OK), address=PUBLIC, port=private.port) as public:
            share = SIZES.rebinding_tries // AT_ONCE
            await asyncio.gather(*(try_often(url, share) for _ in range(AT_ONCE)))
            await clients.close()
    assert private.connections == 0
    assert counts["answered"] == len(public.requests) > 0
    assert counts["refused"] > 0
    assert sum(counts.values()) == SIZES.rebinding_tries
