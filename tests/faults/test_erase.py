"""T39: users are erased while notifications are delivered to them; nothing of them is left."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import apsw
import jwt
import pytest
import redis

from clarion.store.opening import open_engine, sqlite_path
from clarion.store.statement import Unit, statement
from tests.e2e.asking import Answer, Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import ANY_HOUR
from tests.faults.sizes import SIZES
from tests.lanes import is_measured
from tests.peers.twilio import Reply, encode, read_request
from tests.planting import find_in_files, find_in_tables

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

AT_ONCE = 6
EVENTS = 6
# How long the receiver takes to answer, and how many requests it gets at once: deliveries queue.
ANSWER_S = 0.2
CONCURRENCY = 3
PROVIDER_TIMEOUT_S = 5
# A request that began before the response to the erasure may take as long as this to arrive.
IN_FLIGHT_S = float(PROVIDER_TIMEOUT_S)
LIMIT_S = 60.0
QUIET_S = 2.0
LOOK_EVERY_S = 0.1
TYPE = "ORDER"


class Receiver:
    """A slow receiver of webhooks that notes when each user was sent something."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[str, float]] = []
        self._server: asyncio.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, _, body = await read_request(reader)
                user_id = json.loads(body)["data"]["user_id"]
                self.arrivals.append((user_id, time.monotonic()))
                await asyncio.sleep(ANSWER_S)
                writer.write(encode(Reply(204, b"")))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.close()


@dataclass
class Person:
    """A user whose every text holds the mark, and when their erasure was answered."""

    mark: str = field(default_factory=lambda: f"qz{uuid.uuid4().hex}qz")
    erased_at: float = 0.0

    @property
    def id(self) -> str:
        return f"ana-{self.mark}"

    @property
    def path(self) -> str:
        return f"/v1/users/{self.id}"


@dataclass
class World:
    """A running server with a slow provider."""

    installation: Installation
    first: dict[str, Any]
    receiver: Receiver
    redis_url: str | None

    @property
    def app(self) -> Asker:
        return Asker(self.installation.port, self.first["app"]["api_key"])

    def as_user(self, person: Person) -> Asker:
        app = self.first["app"]
        claims = {"sub": person.id, "aud": app["id"], "exp": time.time() + 600}
        return Asker(self.installation.port, jwt.encode(claims, app["user_secret"], "HS256"))

    def set_up(self) -> None:
        app = self.app
        expect(app.ask("PUT", f"/v1/types/{TYPE}", {"user_can_disable": True}), 200)
        for channel in ("in_app", "push", "webhook"):
            template = {"body": "{{ text }} {{ actor.name }}", "variables": ["text"]}
            expect(app.ask("PUT", f"/v1/types/{TYPE}/templates/{channel}", template), 200)
        hook = {
            "kind": "webhook",
            "settings": {"url": self.receiver.url},
            "timeout_s": PROVIDER_TIMEOUT_S,
            "concurrency": CONCURRENCY,
        }
        expect(app.ask("PUT", "/v1/providers/webhook/hook", hook), 201)
        expect(app.ask("PUT", "/v1/users/bob", {}), 201)

    def plant(self, person: Person) -> None:
        """Put marked text wherever a user can have text, and queue deliveries."""
        app, mark, me = self.app, person.mark, self.as_user(person)
        fields = {
            "name": f"Ana {mark}",
            "email": f"{mark}@example.com",
            "tags": [mark],
            "attributes": {"note": mark},
            "metadata": {"note": mark},
            "consent": {"news": {"granted": True, "at": "2026-01-01T00:00:00Z", "source": mark}},
            "billing_address": {"line1": mark},
        }
        expect(app.ask("PUT", person.path, {"name": f"Before {mark}"}), 201)
        expect(app.ask("PUT", person.path, fields), 200)
        hours = {"quiet_hours": ANY_HOUR}
        expect(app.ask("PATCH", f"{person.path}/preferences", hours), 200)
        expect(app.ask("PUT", f"{person.path}/topics/news"), 204)
        once = {"Idempotency-Key": f"device-{mark}"}
        device = {"platform": "clarion", "label": mark, "model": mark}
        made = me.post("/v1/devices", device, headers=once)
        expect(made, 201)
        endpoints = f"/v1/devices/{made.json['device_id']}/endpoints"
        expect(me.post(endpoints, {"label": mark}), 201)
        expect(me.post("/v1/me/tickets", {}), 201)
        for event in self.make_events(person):
            # What an app writes into the key of a request about several users, nobody can know.
            named = mark if event["recipient"] == {"user_id": person.id} else "several"
            once = {"Idempotency-Key": f"{named}-{uuid.uuid4().hex}"}
            expect(app.post("/v1/events", event, headers=once), 202)

    def make_events(self, person: Person) -> Iterable[dict[str, Any]]:
        """Yield events to the user, to several, to a topic, later, and by the user to others."""
        mark, channels = person.mark, ["in_app", "push", "webhook"]
        base = {"type": TYPE, "channels": channels, "actor": {"id": "bob", "name": "Bob"}}
        data = {"data": {"text": mark}}
        to_user = {"recipient": {"user_id": person.id}}
        for number in range(EVENTS):
            yield {**base, **data, **to_user, "dedupe_key": f"{mark}-{number}"}
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        yield {**base, **data, **to_user, "scheduled_at": tomorrow.isoformat()}
        plain = {"data": {"text": "hello"}}
        yield {**base, **plain, "recipient": {"user_ids": ["bob", person.id]}}
        yield {**base, **plain, "recipient": {"topic": "news"}}
        by_user = {"actor": {"id": person.id, "name": f"Ana {mark}"}, "channels": ["in_app"]}
        yield {**base, **plain, **by_user, "recipient": {"user_id": "bob"}}

    async def erase(self, person: Person) -> dict[str, Any]:
        """Erase a user, and note when that was answered."""
        path = f"{person.path}?hard=true"
        answer = await asyncio.to_thread(self.app.ask, "DELETE", path)
        person.erased_at = time.monotonic()
        assert answer.status in {200, 202}, answer.body
        receipt: dict[str, Any] = answer.json
        assert person.mark.encode() not in answer.body
        give_up = time.monotonic() + LIMIT_S
        while receipt["status"] == "running":
            assert time.monotonic() < give_up
            await asyncio.sleep(LOOK_EVERY_S)
            path = f"/v1/erasures/{receipt['receipt_id']}"
            receipt = (await asyncio.to_thread(self.app.get, path)).json
        return receipt

    async def find_traces(self, mark: str) -> list[str]:
        """Return where the mark still is."""
        url = self.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            found = await find_in_tables(engine, url, mark)
        finally:
            await engine.close()
        if path := sqlite_path(url):
            found += find_in_files(path, mark)
            found += ["a backup"] * (mark in back_up(path))
        if self.redis_url:
            with redis.Redis.from_url(self.redis_url) as client:
                found += [f"redis {key!r}" for key in client.scan_iter() if mark in str(key)]
        return found + ["the log"] * (mark in self.installation.log.read_text())


def expect(answer: Answer, status: int) -> None:
    assert answer.status == status, answer.body


def back_up(path: str) -> str:
    """Return the bytes of a backup that is made now, as text."""
    copy = Path(f"{path}.copy")
    source, target = apsw.Connection(path), apsw.Connection(str(copy))
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(1_000)
    source.close()
    target.close()
    text = copy.read_bytes().decode("latin-1")
    copy.unlink()
    return text


@asynccontextmanager
async def running(folder: Path, redis_url: str | None = None, **flags: str) -> AsyncIterator[World]:
    flags = {"allow_private_targets": "127.0.0.0/8", "log_requests": "errors", **flags}
    installation = Installation(folder, **flags, **({"redis": redis_url} if redis_url else {}))
    async with Receiver() as receiver:
        world = World(installation, installation.initialise(), receiver, redis_url)
        with installation:
            await asyncio.to_thread(world.set_up)
            yield world


async def in_turns(work: Callable[[Person], Any], people: list[Person]) -> list[Any]:
    """Do something for all of them, a few at once."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(person: Person) -> Any:
        async with slots:
            return await work(person)

    return list(await asyncio.gather(*(one(each) for each in people)))


async def erase_all(world: World, people: list[Person]) -> int:
    """Create and erase them; return how many jobs were waiting for them."""

    async def live_and_die(person: Person) -> int:
        await asyncio.to_thread(world.plant, person)
        receipt = await world.erase(person)
        removed = receipt["removed"]
        assert removed.get("notifications", 0) + removed.get("events", 0) > 0
        assert person.mark not in json.dumps(receipt)
        return int(removed.get("jobs", 0))

    return sum(await in_turns(live_and_die, people))


async def quiesce(world: World) -> None:
    """Wait until nothing more can arrive."""
    before = -1
    while before != len(world.receiver.arrivals):
        before = len(world.receiver.arrivals)
        await asyncio.sleep(QUIET_S)


async def check_erasures(world: World, figures: Callable[[str], None], name: str) -> None:
    people = [Person() for _ in range(SIZES.erased_users)]
    await asyncio.to_thread(world.plant, people[0])
    assert len(await world.find_traces(people[0].mark)) > EVENTS, "the search finds nothing"
    await world.erase(people.pop(0))
    began = time.monotonic()
    waiting = await erase_all(world, people)
    await quiesce(world)
    by_id = {each.id: each for each in people}
    late = [at - by_id[who].erased_at for who, at in world.receiver.arrivals if who in by_id]
    latest = max((each for each in late if each > 0), default=0.0)
    traces = {each.id: found for each in people if (found := await world.find_traces(each.mark))}
    figures(
        f"T39 on {name}: {len(people):,} users erased during delivery in "
        f"{time.monotonic() - began:.1f} s, {waiting:,} jobs removed, {len(late):,} webhooks sent, "
        f"the last one {latest:.2f} s after the response, {len(traces)} with traces"
    )
    assert traces == {}
    assert latest <= IN_FLIGHT_S or not is_measured()
    assert waiting > 2 * len(people), "nothing was under way: this proves nothing"
    assert world.receiver.arrivals, "nothing was sent at all: this proves nothing"


@pytest.mark.core
@pytest.mark.rest
async def test_nothing_is_left_on_sqlite(tmp_path: Path, figures: Callable[[str], None]) -> None:
    async with running(tmp_path) as world:
        await check_erasures(world, figures, "SQLite")


async def test_nothing_is_left_on_postgres_and_redis(
    tmp_path: Path, postgres_database: str, redis_url: str, figures: Callable[[str], None]
) -> None:
    async with running(tmp_path, redis_url, database=postgres_database) as world:
        await check_erasures(world, figures, "PostgreSQL and Redis")


@pytest.mark.core
@pytest.mark.rest
async def test_an_erasure_survives_the_death_of_the_server(tmp_path: Path) -> None:
    """Killed at random while it erases, the server finishes the erasure after its start."""
    async with running(tmp_path) as world:
        people = [Person() for _ in range(AT_ONCE)]
        await in_turns(lambda each: asyncio.to_thread(world.plant, each), people)
        erasing = [asyncio.create_task(world.erase(each)) for each in people]
        await wait_for_tombstones(world)
        process = world.installation.process
        assert process is not None
        process.kill()
        process.wait()
        await asyncio.gather(*erasing, return_exceptions=True)
        world.installation.start()
        # What was not begun is asked for again, as a client would.
        for person in people:
            receipt = await world.erase(person)
            assert receipt["status"] == "erased"
        assert [each.id for each in people if await world.find_traces(each.mark)] == []


async def wait_for_tombstones(world: World) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not (await asyncio.to_thread(world.app.get, "/v1/erasures")).json["items"]:
        assert time.monotonic() < give_up
        await asyncio.sleep(0)


async def test_what_comes_late_is_kept_out(tmp_path: Path) -> None:
    """The control: of a user whose rows are only deleted, a late request makes new ones."""
    async with running(tmp_path) as world:
        erased, deleted = Person(), Person()
        for each in (erased, deleted):
            await asyncio.to_thread(world.plant, each)
        await world.erase(erased)
        await delete_rows(world, deleted)
        assert register_late(world, erased) == (401, 422, 404)
        assert register_late(world, deleted) == (201, 201, 200)
        assert await world.find_traces(erased.mark) == []
        assert "devices.label" in await world.find_traces(deleted.mark)


def register_late(world: World, person: Person) -> tuple[int, int, int]:
    """Register a device with the user's token, then by the app; then list their devices."""
    device = {"platform": "clarion", "label": person.mark}
    by_user = world.as_user(person).post("/v1/devices", device).status
    by_app = world.app.post("/v1/devices", {**device, "user_id": person.id}).status
    return by_user, by_app, world.app.get(f"{person.path}/devices").status


async def delete_rows(world: World, person: Person) -> None:
    """Delete what has the user's id, and nothing else: without a tombstone."""
    url = world.installation.database_url
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    try:
        for table, column in (
            ("users", "id"),
            ("devices", "user_id"),
            ("notifications", "user_id"),
        ):
            text = f"DELETE FROM {table} WHERE {column} = :user_id"  # noqa: S608
            await engine.write(Unit("", (statement("d", text).step(user_id=person.id),)))
    finally:
        await engine.close()
