"""One app with one provider that fails: what it sends, and what the server says became of it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from clarion.access.provisioning import NewApp, create_app
from clarion.access.sql import Apps
from clarion.access.vault import Vault
from clarion.clock import SystemClock
from clarion.store.opening import open_engine
from clarion.system.data_directory import DataDirectory
from tests.e2e.asking import Answer, Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import ANY_HOUR
from tests.faults.channels.peers import PEERS, Peer
from tests.peers.authority import Authority

USERS = 3
BATCH = 100
LOOK_EVERY_S = 0.25
CALLS_AT_ONCE = 8
FINAL = frozenset({"sent", "delivered", "failed", "dropped", "expired"})

Delivery = dict[str, Any]


@dataclass
class World:
    """A running server, and the apps that were created for the cells."""

    installation: Installation
    authority: Authority
    apps: list[NewApp]
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))

    def make_peer(self, kind: str) -> Peer:
        return PEERS[kind](self.authority, self.apps[0].provider_key_pem.decode())

    def make_cell(self, kind: str) -> "Cell":
        """Return a cell with an app of its own: its provider has a circuit breaker of its own."""
        app = self.apps.pop()
        asker = Asker(self.installation.port, app.api_key)
        return Cell(self, asker, self.make_peer(kind))


@asynccontextmanager
async def running(folder: Path, apps: int) -> AsyncIterator[World]:
    """Start a server that trusts the authority of the peers, with so many apps."""
    authority = Authority.create(folder)
    installation = Installation(
        folder,
        allow_private_targets="127.0.0.0/8",
        requests_per_minute="100000000",
        app_requests_per_minute="100000000",
    )
    installation.under = ["env", f"SSL_CERT_FILE={authority.ca_path}"]
    await asyncio.to_thread(installation.initialise)
    created = await _create_apps(installation, apps + 1)
    await asyncio.to_thread(installation.start)
    try:
        yield World(installation, authority, created)
    finally:
        await asyncio.to_thread(installation.stop)


async def _create_apps(installation: Installation, count: int) -> list[NewApp]:
    engine = await open_engine(
        installation.database_url, waiting_limit=100, batch_limit=100, on_broken=print
    )
    vault = Vault(*DataDirectory(installation.data).read_master_keys())
    apps, clock = Apps(engine), SystemClock()
    try:
        return [
            await create_app(
                name=f"app {number}",
                bundle_id=f"com.example.app{number}",
                apps=apps,
                vault=vault,
                clock=clock,
            )
            for number in range(count)
        ]
    finally:
        await engine.close()


@dataclass
class Cell:
    """An app, its provider `main`, and the messages that it sent, by event."""

    world: World
    app: Asker
    peer: Peer
    notifications: dict[str, str] = field(default_factory=dict)

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        async with self.world.calls:
            return await asyncio.to_thread(self.app.ask, method, path, body)

    async def demand(self, status: int, method: str, path: str, body: Any = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.status == status, (method, path, answer.body)
        return answer.json if answer.body else None

    async def set_up(self) -> None:
        """Start the peer; create the provider, a type with its template, and the users."""
        await self.peer.start()
        await self.put_provider("main", self.peer, 201)
        await self.put_type("NEWS")
        for number in range(USERS):
            await self._create_user(number)

    async def put_type(self, name: str) -> None:
        channel = self.peer.channel
        given = {"category": "transactional", "default_channels": [channel]}
        await self.demand(200, "PUT", f"/v1/types/{name}", given)
        template = {"subject": "News", "body": "Number {{ number }}", "variables": ["number"]}
        if channel in ("sms", "webhook"):
            del template["subject"]
        await self.demand(200, "PUT", f"/v1/types/{name}/templates/{channel}", template)

    async def put_provider(self, name: str, peer: Peer, status: int = 200, **more: Any) -> None:
        path = f"/v1/providers/{peer.channel}/{name}"
        peer.learn(await self.demand(status, "PUT", path, peer.provider() | more))

    async def _create_user(self, number: int) -> None:
        path = f"/v1/users/u{number}"
        await self.demand(201, "PUT", path, self.peer.user(number))
        preferences = {"quiet_hours": ANY_HOUR, "types": {"NEWS": {self.peer.channel: True}}}
        await self.demand(200, "PATCH", f"{path}/preferences", preferences)
        if device := self.peer.device(number):
            await self.demand(201, "POST", "/v1/devices", device | {"user_id": f"u{number}"})

    async def send(self, count: int, type_: str = "NEWS") -> list[str]:
        """Send so many events, to the users in turn; return their ids."""
        events = [
            {
                "type": type_,
                "recipient": {"user_id": f"u{number % USERS}"},
                "data": {"number": str(number)},
            }
            for number in range(count)
        ]
        ids: list[str] = []
        for start in range(0, count, BATCH):
            body = {"events": events[start : start + BATCH]}
            accepted = await self.demand(202, "POST", "/v1/events/batch", body)
            ids += [each["event_id"] for each in accepted["results"]]
        return ids

    async def find(self, event_id: str) -> Delivery | None:
        """Return the delivery of an event, if it was decided."""
        if event_id not in self.notifications:
            path = f"/v1/events/{event_id}/notifications"
            items = (await self.demand(200, "GET", path))["items"]
            if not items:
                return None
            self.notifications[event_id] = items[0]["id"]
        path = f"/v1/notifications/{self.notifications[event_id]}/deliveries"
        (found,) = (await self.demand(200, "GET", path))["items"]
        delivery: Delivery = found
        return delivery

    async def wait(
        self,
        event_ids: Iterable[str],
        is_met: Callable[[Delivery], bool],
        limit_s: float,
        at_least: int | None = None,
    ) -> list[Delivery]:
        """Wait until the deliveries of all events, or of so many, meet a condition."""
        left, met = list(event_ids), []
        wanted = len(left) if at_least is None else at_least
        give_up = time.monotonic() + limit_s
        while True:
            found = await asyncio.gather(*map(self.find, left))
            met += [each for each in found if each and is_met(each)]
            if len(met) >= wanted:
                return met
            assert time.monotonic() < give_up, (
                f"{len(met)} of {wanted} after {limit_s:g} s: {found[:2]}"
            )
            left = [e for e, d in zip(left, found, strict=True) if not (d and is_met(d))]
            await asyncio.sleep(LOOK_EVERY_S + len(left) / 500)

    async def circuit(self) -> str:
        path = f"/v1/providers/{self.peer.channel}/main"
        state: str = (await self.demand(200, "GET", path))["health"]["circuit"]
        return state

    async def wait_for_circuit(self, state: str, limit_s: float) -> None:
        async with asyncio.timeout(limit_s):
            while await self.circuit() != state:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(LOOK_EVERY_S)

    async def warm_up(self) -> None:
        """Deliver one message: the set-up is right, and there is a connection."""
        ids = await self.send(1)
        (done,) = await self.wait(ids, is_final, 30)
        assert done["status"] == self.peer.success, done


async def until(look: Callable[[], bool], limit_s: float) -> None:
    """Wait for a condition on a peer."""
    async with asyncio.timeout(limit_s):
        while not look():  # noqa: ASYNC110 - peers know nothing of who waits
            await asyncio.sleep(0.001)


def is_final(delivery: Delivery) -> bool:
    return delivery["status"] in FINAL


def is_tried(delivery: Delivery) -> bool:
    return bool(delivery["attempts"])


def gaps_s(peer: Peer) -> list[float]:
    """Return the times between one arrival of a message and the next of the same one."""
    by_id: dict[str, list[float]] = {}
    for arrival in peer.arrivals:
        by_id.setdefault(arrival.id, []).append(arrival.at)
    return [after - before for times in by_id.values() for before, after in pairwise(times)]


def count_ids(peer: Peer) -> Counter[str]:
    return Counter(arrival.id for arrival in peer.arrivals)


async def run_all(cells: Sequence[tuple[str, Callable[[], Any]]]) -> list[str]:
    """Run cells side by side; return what is wrong, a line each."""
    results = await asyncio.gather(*(partial(run)() for _, run in cells), return_exceptions=True)
    return [
        f"{name}: {type(result).__name__}: {result}"
        for (name, _), result in zip(cells, results, strict=True)
        if isinstance(result, BaseException)
    ]
