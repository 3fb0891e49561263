"""The bus on Redis beyond its port: what it keeps there, for how long, and how it is bounded."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from clarion.nodes.bus import DropReason
from clarion.nodes.redis.breaker import RedisUnavailable, make_breaker
from clarion.nodes.redis.bus import RedisBus, SubscriptionLost
from clarion.nodes.redis.client import slot_of
from clarion.nodes.redis.link import Command
from clarion.nodes.redis.outbox import Note, Outbox, pack_for_all, pack_for_node
from clarion.nodes.redis.presence import DevicePresence
from tests.contract.buses import joined_redis
from tests.contract.proxy import Proxy
from tests.contract.test_bus import Received, until, until_held
from tests.factories import FixedClock
from tests.peers.authority import Authority
from tests.servers import RedisServer

SECOND = 1_000
KIB = 1_024


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


class Network:
    """Nodes of one test, on one Redis."""

    def __init__(self, url: str, name: str, clock: FixedClock, stack: AsyncExitStack) -> None:
        self._url, self._name, self._clock, self._stack = url, name, clock, stack

    async def join(self, beat_every_s: float = 20.0) -> RedisBus:
        bus = joined_redis(self._url, self._name, clock=self._clock, beat_every_s=beat_every_s)
        return await self._stack.enter_async_context(bus)


@pytest.fixture
async def network(
    redis_url: str, clock: FixedClock, request: pytest.FixtureRequest
) -> AsyncIterator[Network]:
    async with AsyncExitStack() as stack:
        yield Network(redis_url, request.node.name, clock, stack)


async def ask(bus: RedisBus, *command: str | bytes | int) -> Any:
    """Run a command on the one server of a bus."""
    (answer,) = await bus._client.run([(0, command)])
    return answer


async def list_fields(bus: RedisBus) -> set[bytes]:
    """Return the devices in all presence hashes."""
    steps: list[tuple[int, Command]] = [(0, ("HKEYS", key)) for key in bus._presence._keys]
    fields = {field for some in await bus._client.run(steps) for field in some}
    return {field for field in fields if not field.startswith(b"!")}


async def leave_behind(bus: RedisBus, device_id: str, clock: FixedClock) -> None:
    """Write what a node that was killed has written."""
    dead = DevicePresence(bus._client.namespace, "killed.0")
    await bus._client.run(list(dead.hold([(device_id, 1)], clock.now() // SECOND)))


async def test_presence_expires_a_minute_after_the_last_heart_beat(
    network: Network, clock: FixedClock
) -> None:
    reader, holder = await network.join(), await network.join()
    holder.hold("d", clock.now())
    await holder.settle()
    clock.advance(60 * SECOND)
    assert await reader.find_held(["d"]) == {"d"}
    clock.advance(SECOND)
    assert await reader.find_held(["d"]) == frozenset()


async def test_heart_beats_keep_presence_and_remove_what_has_expired(
    network: Network, clock: FixedClock
) -> None:
    reader, holder = await network.join(), await network.join(beat_every_s=0.02)
    await leave_behind(reader, "left behind", clock)
    holder.hold("d", 1)
    await holder.settle()
    clock.advance(61 * SECOND)
    await until_held(reader, {"d"}, "d", "left behind")
    async with asyncio.timeout(30):
        while await list_fields(reader) != {b"d"}:  # noqa: ASYNC110 - a sweep announces nothing
            await asyncio.sleep(0.01)


async def test_everything_that_is_kept_expires_by_itself(network: Network) -> None:
    bus = await network.join()
    bus.hold("d", 1)
    await bus.settle()
    await until(lambda: bus._probe_number > 1)
    keys = await ask(bus, "KEYS", "*")
    assert len(keys) == 17
    lives = [await ask(bus, "TTL", key) for key in keys]
    assert all(0 < life <= 240 for life in lives)


async def test_a_connection_that_is_older_replaces_one_that_has_expired(
    network: Network, clock: FixedClock
) -> None:
    reader, holder = await network.join(), await network.join()
    received = Received(holder)
    await leave_behind(reader, "d", clock)
    holder.hold("d", 0)
    await until(lambda: received.replaced == ["d"])
    received.replaced.clear()
    clock.advance(61 * SECOND)
    holder.hold("d", 0)
    await holder.settle()
    assert await reader.find_held(["d"]) == {"d"}
    assert not received.replaced


async def test_presence_of_a_node_without_a_subscriber_is_removed(
    network: Network, clock: FixedClock
) -> None:
    publisher, devices = await network.join(), ["d0", "d1", "d2"]
    for device in devices:
        await leave_behind(publisher, device, clock)
    assert await publisher.find_held(devices) == set(devices)
    publisher.send_to_holder("push", "d0", b"")
    await until_held(publisher, {"d1", "d2"}, *devices)


async def test_what_a_node_wrote_since_it_subscribed_again_is_not_removed_by_an_older_finding(
    network: Network,
) -> None:
    reader, holder = await network.join(), await network.join()
    holder.hold("d", 1)
    await holder.settle()
    stale = next(iter((await reader._find_holders(["d"])).values()))
    holder._breaker.open(ConnectionError("a moment"))
    await until(lambda: holder.counts.rebuilds == 2 and holder.is_connected)
    await reader._client.run(list(reader._presence.release(["d"], stale)))
    assert await reader.find_held(["d"]) == {"d"}


async def test_what_comes_for_a_device_that_has_moved_follows_it_once(network: Network) -> None:
    sender, former, holder = [await network.join() for _ in range(3)]
    received = Received(holder, "push")
    holder.hold("moved", 1)
    await holder.settle()
    for hops in (0, 1):
        note = Note("push", "moved", str(hops).encode(), hops)
        ((frame, _),) = pack_for_node(sender.node, [note], {})
        await ask(sender, "SPUBLISH", former._own_channel, frame)
    sender.send_to_holder("push", "moved", b"last")
    await until(lambda: b"last" in received.of("push"))
    assert set(received.of("push")) == {b"0", b"last"}


async def test_a_late_notice_does_not_end_a_newer_connection(network: Network) -> None:
    sender, holder = await network.join(), await network.join()
    received = Received(holder, "push")
    holder.hold("d", 10)
    await holder.settle()
    ((frame, _),) = pack_for_node(sender.node, [], {"d": 9})
    await ask(sender, "SPUBLISH", holder._own_channel, frame)
    sender.send_to_holder("push", "d", b"")
    await until(lambda: bool(received.of("push")))
    assert not received.replaced


async def test_what_cannot_be_read_is_counted_and_what_a_later_version_adds_is_ignored(
    network: Network,
) -> None:
    sender, listener = await network.join(), await network.join()
    received = Received(listener, "all")
    (frame,) = pack_for_all("another", [("all", b"read")])
    longer = b"\x93" + frame[1:] + b"\xc0"  # an array of three, the last null
    for channel in (listener._own_channel, listener._all_channels[3]):
        await ask(sender, "SPUBLISH", channel, b"\xc1")
    await ask(sender, "SPUBLISH", listener._all_channels[3], longer)
    await until(lambda: received.of("all") == [b"read"])
    assert listener.counts.dropped == {DropReason.UNREADABLE: 2}
    assert listener.is_connected


async def test_frames_are_counted_on_both_sides(network: Network) -> None:
    publisher, holder = await network.join(), await network.join()
    received = Received(holder, "push", "all")
    holder.hold("d", 1)
    await holder.settle()
    for _ in range(50):
        publisher.send_to_holder("push", "d", b"x" * 400)
    publisher.publish("all", b"y")
    await until(lambda: len(received.of("push")) == 50 and len(received.of("all")) == 1)
    sent, taken = publisher.counts, holder.counts
    assert (sent.messages_sent, sent.frames_sent) == (51, 2)
    assert (taken.messages_received, taken.frames_received) == (51, 2)
    assert 20_000 < sent.bytes_sent == taken.bytes_received < 25_000


def test_a_frame_is_full_at_64_kib() -> None:
    notes = [Note("push", f"d{number}", bytes(KIB)) for number in range(200)]
    frames = list(pack_for_node("a", notes, {"r": 1}))
    assert [device for _, devices in frames for device in devices] == [n.device_id for n in notes]
    assert len(frames) == 4
    assert all(len(frame) < 68 * KIB for frame, _ in frames)
    said = list(pack_for_all("a", [("all", bytes(100 * KIB))] * 2))
    assert len(said) == 2


def test_an_outbox_that_is_full_takes_nothing_until_something_was_taken() -> None:
    outbox = Outbox(bytes_limit=10 * KIB)
    assert sum(outbox.add("all", bytes(KIB)) for _ in range(20)) == 9
    assert not outbox.add_note(Note("push", "d", bytes(KIB)))
    assert len(outbox.take()) == 9
    assert outbox.add_note(Note("push", "d", bytes(KIB)))
    assert len(outbox.take_notes()) == 1
    assert not outbox
    assert sum(outbox.add_note(Note("push", "d", bytes(KIB))) for _ in range(20)) == 9
    assert outbox.clear() == 9


async def test_many_devices_at_once_are_held_in_steps_and_each_settles(network: Network) -> None:
    reader, holder = await network.join(), await network.join()
    devices = [f"device-{number}" for number in range(5_000)]

    async def connect(device_id: str) -> None:
        holder.hold(device_id, 1)
        await holder.settle()

    await asyncio.gather(*map(connect, devices))
    assert await reader.find_held(devices) == frozenset(devices)
    for each in devices:
        holder.release(each)
    await holder.settle()
    assert await reader.find_held(devices) == frozenset()


async def test_what_does_not_fit_is_dropped_and_counted(network: Network) -> None:
    publisher, listener = await network.join(), await network.join()
    received = Received(listener, "all")
    publisher._outbox = Outbox(bytes_limit=10 * KIB)
    for number in range(20):
        publisher.publish("all", bytes([number]) * KIB)
    await until(lambda: len(received.of("all")) == 9)
    assert publisher.counts.dropped == {DropReason.FULL: 11}
    publisher.publish("all", b"after")
    await until(lambda: received.of("all")[-1] == b"after")


async def test_a_node_that_may_have_missed_something_is_notified(network: Network) -> None:
    publisher, listener = await network.join(), await network.join()
    received = Received(listener, "all")
    publisher._outbox = Outbox(bytes_limit=10 * KIB)
    for _ in range(20):
        publisher.publish("all", bytes(KIB))
    await until(lambda: received.gaps == 1)
    publisher._breaker.open(ConnectionError("a moment"))
    publisher.publish("all", b"lost")
    await until(lambda: received.gaps == 2)
    assert listener.is_connected


async def test_a_node_whose_presence_had_expired_may_have_missed_something(
    network: Network, clock: FixedClock
) -> None:
    """The machine slept: others stored messages for its devices, and do not announce them."""
    holder = await network.join(beat_every_s=0.02)
    received = Received(holder)
    holder.hold("d", clock.now())
    await holder.settle()
    clock.advance(60 * SECOND)
    await until(lambda: holder._presence.written_at == clock.now() // SECOND)
    assert received.gaps == 0
    clock.advance(61 * SECOND)
    await until(lambda: received.gaps == 1)


async def test_a_node_that_does_not_count_is_silent_until_the_store_does_not_know_it(
    redis_url: str,
) -> None:
    joining = joined_redis(redis_url, silent_s=0.5, gone_s=2.0, node_id="a")
    async with joining as bus:
        received, key = Received(bus), f"{bus._client.namespace}:nodes"
        known = {"a": "this", "b": "other"}
        with capture_logs() as logs:
            await ask(bus, "HSET", key, "other.1", "7 b")
            bus.list_living = lambda: known
            await until(lambda: not bus.is_connected)
            with pytest.raises(SubscriptionLost):
                await bus.check()
            while await ask(bus, "HKEYS", key) != [bus.node.encode()]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not received.gaps
            assert not bus.is_connected
            del known["b"]
            await until(lambda: bus.is_connected and received.gaps == 1)
        assert [each["event"] for each in logs] == ["node_unreachable", "nodes_reachable"]


async def test_presence_is_kept_while_another_node_is_silent(
    redis_url: str, clock: FixedClock
) -> None:
    async with joined_redis(redis_url, clock=clock, beat_every_s=0.02) as holder:
        holder.list_living = lambda: {"b": "other"}
        holder.hold("d", 1)
        await until(lambda: not holder.is_connected)
        clock.advance(61 * SECOND)
        async with joined_redis(redis_url, clock=clock) as reader:
            await until_held(reader, {"d"})


async def test_a_node_that_was_killed_and_started_anew_replaces_itself(redis_url: str) -> None:
    async with joined_redis(redis_url, "one") as first:
        key = f"{first._client.namespace}:nodes"
        await ask(first, "HSET", key, "node.killed", 7, "other.1", 7)
        async with joined_redis(redis_url, "one") as second:
            fields = {b"other.1", first.node.encode(), second.node.encode()}
            async with asyncio.timeout(30):
                while set(await ask(second, "HKEYS", key)) != fields:  # noqa: ASYNC110 - silent
                    await asyncio.sleep(0.01)


async def test_installations_on_one_server_receive_nothing_of_each_other(redis_url: str) -> None:
    async with (
        joined_redis(redis_url, "one") as one,
        joined_redis(redis_url, "two") as two,
        joined_redis(redis_url, "two") as third,
    ):
        received, stranger = Received(third, "all"), Received(one, "all")
        two.hold("d", 1)
        await two.settle()
        two.publish("all", b"")
        await until(lambda: bool(received.of("all")))
        assert await third.find_held(["d"]) == {"d"}
        assert await one.find_held(["d"]) == frozenset()
        assert not stranger.of("all")


async def test_a_node_in_good_order_leaves_nothing_behind(redis_url: str) -> None:
    async with joined_redis(redis_url, "one") as one:
        one.hold("d", 1)
        await one.settle()
        await until(lambda: one._probe_number > 1)
        assert await ask(one, "DBSIZE") == 17
    async with joined_redis(redis_url, "two") as two:
        assert await ask(two, "KEYS", "clarion:one:*") == []


@pytest.fixture
def guarded() -> Iterator[RedisServer]:
    with RedisServer("--requirepass", "s3cret word") as server:
        yield server


@asynccontextmanager
async def behind_tls(server: RedisServer, folder: Path) -> AsyncIterator[str]:
    """The address of a server behind TLS, with its password and the authority to trust."""
    authority = Authority.create(folder)
    async with Proxy.to(server.url, tls=authority.server_context([])) as proxy:
        port = proxy.url.rpartition(":")[2].partition("/")[0]
        address = f"rediss://:s3cret%20word@127.0.0.1:{port}"
        yield f"{address}?ssl_ca_certs={authority.ca_path}"


async def test_nodes_meet_over_tls_with_a_password(guarded: RedisServer, tmp_path: Path) -> None:
    async with (
        behind_tls(guarded, tmp_path) as url,
        joined_redis(url) as publisher,
        joined_redis(url) as listener,
    ):
        received = Received(listener, "all")
        publisher.publish("all", b"over TLS")
        await until(lambda: received.of("all") == [b"over TLS"])


async def test_a_server_of_another_authority_is_refused(
    guarded: RedisServer, tmp_path: Path
) -> None:
    async with behind_tls(guarded, tmp_path) as url:
        with capture_logs() as logs, pytest.raises(RedisUnavailable):
            await make_breaker(url.partition("?")[0], "test").check()
    assert logs[0]["error"] == "SSLCertVerificationError"


async def test_a_wrong_password_is_named_in_the_log_but_not_shown(guarded: RedisServer) -> None:
    url = guarded.url.replace("redis://", "redis://:mistaken@")
    with capture_logs() as logs, pytest.raises(RedisUnavailable):
        await make_breaker(url, "test").check()
    assert (logs[0]["event"], logs[0]["error"]) == ("redis_unavailable", "WRONGPASS")
    assert "mistaken" not in str(logs)


async def test_the_channel_of_a_node_has_the_slot_of_its_name(network: Network) -> None:
    bus = await network.join()
    assert slot_of(bus._own_channel) == slot_of(bus.node)
