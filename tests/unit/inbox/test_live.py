"""The live clients of an inbox: woken when it changes, limited, and ended at the stop."""

import asyncio
from dataclasses import dataclass, field

import pytest

from clarion.errors import Overloaded, TooManyRequests
from clarion.inbox.live import ANNOUNCED_AT_ONCE, CHANGED, EndReason, LiveClient, LiveClients
from tests.recorded_bus import RecordedHub
from tests.unit.inbox.memory import MemoryInboxes


@dataclass
class Client:
    """Records the calls it gets."""

    calls: list[str] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, live: LiveClients, user_id: str = "ana") -> LiveClient:
        return live.open("app", user_id, wake=self.wake, end=self.end)

    def end(self, reason: EndReason) -> None:
        self.calls.append(reason)

    def wake(self) -> None:
        self.calls.append("wake")
        self.woken.set()


@pytest.fixture
def inboxes() -> MemoryInboxes:
    return MemoryInboxes()


@pytest.fixture
async def live(inboxes: MemoryInboxes) -> LiveClients:
    return LiveClients(inboxes, per_user=2, total=3)


async def test_all_clients_of_the_user_are_woken_and_no_others(live: LiveClients) -> None:
    here, there, bo = Client(), Client(), Client()
    here.open(live)
    there.open(live)
    bo.open(live, "bo")
    live.notify("app", "ana")
    live.notify("other", "ana")
    live.notify("app", "nobody")
    assert (here.calls, there.calls, bo.calls) == (["wake"], ["wake"], [])


async def test_a_closed_client_is_removed(live: LiveClients) -> None:
    client = Client()
    first = client.open(live)
    other = client.open(live)
    for _ in range(2):
        live.close(first)
    assert len(live) == 1
    live.close(other)
    live.close(other)
    live.notify("app", "ana")
    assert (len(live), client.calls) == (0, [])


async def test_a_user_has_a_limit_and_so_has_the_node(live: LiveClients) -> None:
    client = Client()
    first = client.open(live)
    client.open(live)
    with pytest.raises(TooManyRequests):
        client.open(live)
    client.open(live, "bo")
    with pytest.raises(Overloaded):
        client.open(live, "cy")
    live.close(first)
    assert client.open(live) is not None


async def test_no_app_takes_the_last_tenth_from_the_others(inboxes: MemoryInboxes) -> None:
    live, client = LiveClients(inboxes, per_user=100, total=20), Client()
    for _ in range(18):
        client.open(live)
    with pytest.raises(Overloaded):
        client.open(live)
    others = [live.open("other", "bo", wake=client.wake, end=client.end) for _ in range(2)]
    with pytest.raises(Overloaded):
        live.open("third", "cy", wake=client.wake, end=client.end)
    live.close(others[0])
    with pytest.raises(Overloaded):
        client.open(live)
    assert live.open("third", "cy", wake=client.wake, end=client.end) is not None


async def test_all_clients_of_a_user_are_ended_and_no_others(live: LiveClients) -> None:
    here, there, bo = Client(), Client(), Client()
    for client in (here, there):
        client.open(live)
    bo.open(live, "bo")
    live.disconnect_user("app", "ana")
    live.disconnect_user("other", "bo")
    live.disconnect_user("app", "nobody")
    assert (here.calls, there.calls, bo.calls) == (["user_inactive"], ["user_inactive"], [])


async def test_a_stop_ends_all_and_waits_for_them(live: LiveClients) -> None:
    client = Client()
    opened = [client.open(live), client.open(live, "bo")]
    stopping = asyncio.ensure_future(live.stop(10))
    await asyncio.sleep(0)
    assert client.calls == ["restarting", "restarting"]
    assert not stopping.done()
    for each in opened:
        live.close(each)
    await stopping
    with pytest.raises(Overloaded):
        client.open(live)


async def test_a_gentle_stop_ends_clients_one_after_the_other(inboxes: MemoryInboxes) -> None:
    live = LiveClients(inboxes, per_user=1, total=2_000)
    client = Client()
    for number in range(1_500):
        client.open(live, f"user-{number}")
    gone = live.open("app", "gone", wake=lambda: None, end=lambda _: client.calls.append("gone"))
    stopping = asyncio.ensure_future(live.stop(1, spread_s=60))
    await asyncio.sleep(0)
    live.close(gone)
    async with asyncio.timeout(30):
        while len(client.calls) < 3:  # noqa: ASYNC110 - nothing signals us
            await asyncio.sleep(0.001)
    assert len(client.calls) < 1_500
    assert set(client.calls) == {"restarting"}
    stopping.cancel()


async def test_a_stop_does_not_wait_for_ever(live: LiveClients) -> None:
    Client().open(live)
    await live.stop(0.01)
    assert len(live) == 1


async def test_a_poll_wakes_the_clients_whose_inbox_has_changed(
    inboxes: MemoryInboxes, live: LiveClients
) -> None:
    client, bo = Client(), Client()
    client.open(live)
    bo.open(live, "bo")
    await live.poll()
    await live.poll()
    assert client.calls == ["wake"]
    inboxes.add()
    await live.poll()
    assert (client.calls, bo.calls) == (["wake", "wake"], [])


async def test_a_store_that_does_not_answer_does_not_end_the_polling(
    inboxes: MemoryInboxes,
) -> None:
    live = LiveClients(inboxes, per_user=2, total=3, poll_s=0, check_s=0)
    client = Client()
    client.open(live)
    inboxes.is_broken = True
    polling = asyncio.ensure_future(live.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.calls == []
    inboxes.is_broken = False
    await asyncio.wait_for(client.woken.wait(), 60)
    polling.cancel()
    assert client.calls[0] == "wake"


class Nodes:
    """Two nodes; clients are connected to the second."""

    def __init__(self, inboxes: MemoryInboxes) -> None:
        hub = RecordedHub()
        self.bus, self.other_bus = hub.join(), hub.join()
        self.here = LiveClients(inboxes, per_user=2, total=3, bus=self.bus)
        self.there = LiveClients(inboxes, per_user=2, total=3, bus=self.other_bus, poll_s=0)


@pytest.fixture
async def nodes(inboxes: MemoryInboxes) -> Nodes:
    return Nodes(inboxes)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_clients_on_other_nodes_are_woken_and_no_others(nodes: Nodes) -> None:
    ana, bo = Client(), Client()
    ana.open(nodes.there)
    bo.open(nodes.there, "bo")
    nodes.here.notify("app", "ana")
    nodes.here.notify("other", "bo")
    await settle()
    assert (ana.calls, bo.calls) == (["wake"], [])


async def test_the_changes_of_one_turn_are_told_once(nodes: Nodes) -> None:
    ana, bo = Client(), Client()
    ana.open(nodes.there)
    bo.open(nodes.there, "bo")
    for _ in range(10):
        nodes.here.notify("app", "ana")
        nodes.here.notify("app", "bo")
    await settle()
    assert (ana.calls, bo.calls) == (["wake"], ["wake"])
    assert [subject for subject, _ in nodes.bus.published] == [CHANGED]
    nodes.here.notify("app", "ana")
    await settle()
    assert ana.calls == ["wake", "wake"]


async def test_many_users_are_told_in_parts_and_none_is_left_out(nodes: Nodes) -> None:
    last = Client()
    last.open(nodes.there, f"user-{2 * ANNOUNCED_AT_ONCE}")
    for number in range(2 * ANNOUNCED_AT_ONCE + 1):
        nodes.here.notify("app", f"user-{number}")
    await settle()
    assert (len(nodes.bus.published), last.calls) == (3, ["wake"])


async def test_what_was_heard_is_not_told_again(nodes: Nodes) -> None:
    nodes.here.notify("app", "ana")
    await settle()
    assert nodes.other_bus.published == []


async def test_what_cannot_be_read_concerns_everybody(nodes: Nodes) -> None:
    client = Client()
    client.open(nodes.there)
    nodes.bus.publish(CHANGED, b"\xc1")
    await settle()
    assert client.calls == ["wake"]


async def test_the_store_is_polled_while_the_bus_is_disconnected_and_once_after_a_gap(
    nodes: Nodes, inboxes: MemoryInboxes
) -> None:
    client = Client()
    client.open(nodes.there)
    inboxes.add()
    polling = asyncio.ensure_future(nodes.there.run())
    await settle()
    assert client.calls == []  # what changes is told
    nodes.other_bus.is_connected = False
    await asyncio.wait_for(client.woken.wait(), 30)
    nodes.other_bus.is_connected = True
    await settle()
    client.woken.clear()
    inboxes.add()
    await settle()
    assert not client.woken.is_set()
    nodes.other_bus.reconnect()
    await asyncio.wait_for(client.woken.wait(), 30)
    polling.cancel()
