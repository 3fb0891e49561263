"""The live clients of an inbox: woken when it changes, limited, and ended at the stop."""

import asyncio
from dataclasses import dataclass, field

import pytest

from clarion.errors import Overloaded, TooManyRequests
from clarion.inbox.live import EndReason, LiveClient, LiveClients
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
    live = LiveClients(inboxes, per_user=2, total=3, poll_s=0)
    client = Client()
    client.open(live)
    inboxes.is_broken = True
    polling = asyncio.ensure_future(live.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert client.calls == []
    inboxes.is_broken = False
    await asyncio.wait_for(client.woken.wait(), 5)
    polling.cancel()
    assert client.calls[0] == "wake"
