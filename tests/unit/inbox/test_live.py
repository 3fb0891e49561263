"""Who looks at an inbox: woken when it changes, limited, and ended at the stop."""

import asyncio
from dataclasses import dataclass, field

import pytest

from clarion.errors import Overloaded, TooManyRequests
from clarion.inbox.actions import Acts, Verb
from clarion.inbox.live import Live, Screen
from tests.factories import NOW, FixedClock
from tests.unit.inbox.memory import MemoryInboxes


@dataclass
class Looker:
    """A screen that notes what it is told."""

    notes: list[str] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def open(self, live: Live, user_id: str = "ana") -> Screen:
        return live.open("app", user_id, wake=self.wake, end=lambda: self.notes.append("end"))

    def wake(self) -> None:
        self.notes.append("wake")
        self.woken.set()


@pytest.fixture
def inboxes() -> MemoryInboxes:
    return MemoryInboxes()


@pytest.fixture
async def live(inboxes: MemoryInboxes) -> Live:
    return Live(inboxes, per_user=2, total=3)


async def test_all_screens_of_the_person_are_woken_and_no_others(live: Live) -> None:
    here, there, bo = Looker(), Looker(), Looker()
    here.open(live)
    there.open(live)
    bo.open(live, "bo")
    live.notify("app", "ana")
    live.notify("other", "ana")
    live.notify("app", "nobody")
    assert (here.notes, there.notes, bo.notes) == (["wake"], ["wake"], [])


async def test_a_closed_screen_is_known_no_more(live: Live) -> None:
    looker = Looker()
    screen = looker.open(live)
    other = looker.open(live)
    for _ in range(2):
        live.close(screen)
    assert len(live) == 1
    live.close(other)
    live.close(other)
    live.notify("app", "ana")
    assert (len(live), looker.notes) == (0, [])


async def test_a_person_has_a_limit_and_so_has_the_node(live: Live) -> None:
    looker = Looker()
    first = looker.open(live)
    looker.open(live)
    with pytest.raises(TooManyRequests):
        looker.open(live)
    looker.open(live, "bo")
    with pytest.raises(Overloaded):
        looker.open(live, "cy")
    live.close(first)
    assert looker.open(live) is not None


async def test_a_stop_ends_all_and_waits_for_them(live: Live) -> None:
    looker = Looker()
    screens = [looker.open(live), looker.open(live, "bo")]
    stopping = asyncio.ensure_future(live.stop(10))
    await asyncio.sleep(0)
    assert looker.notes == ["end", "end"]
    assert not stopping.done()
    for screen in screens:
        live.close(screen)
    await stopping
    with pytest.raises(Overloaded):
        looker.open(live)


async def test_a_stop_does_not_wait_for_ever(live: Live) -> None:
    Looker().open(live)
    await live.stop(0.01)
    assert len(live) == 1


async def test_a_look_wakes_those_whose_inbox_has_changed(
    inboxes: MemoryInboxes, live: Live
) -> None:
    looker, bo = Looker(), Looker()
    looker.open(live)
    bo.open(live, "bo")
    await live.look()
    await live.look()
    assert looker.notes == ["wake"]
    inboxes.add()
    await live.look()
    assert (looker.notes, bo.notes) == (["wake", "wake"], [])


async def test_a_store_that_does_not_answer_does_not_end_the_looking(
    inboxes: MemoryInboxes,
) -> None:
    live = Live(inboxes, per_user=2, total=3, poll_s=0)
    looker = Looker()
    looker.open(live)
    inboxes.is_broken = True
    looking = asyncio.ensure_future(live.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert looker.notes == []
    inboxes.is_broken = False
    await asyncio.wait_for(looker.woken.wait(), 5)
    looking.cancel()
    assert looker.notes[0] == "wake"


@pytest.mark.parametrize("verb", Verb)
async def test_an_act_wakes_the_screens(inboxes: MemoryInboxes, live: Live, verb: Verb) -> None:
    looker, made = Looker(), inboxes.add()
    looker.open(live)
    acts = Acts(inboxes, live, FixedClock())
    acted = await acts.act(verb, "app", "ana", made.id)
    assert acted is not None
    assert acted.read_at == NOW
    assert await acts.act(verb, "app", "ana", "nothing") is None
    assert (await acts.read_all("app", "ana")).unread_count == 0
    assert looker.notes == ["wake"] * 3
