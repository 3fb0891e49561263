"""Pushes, broadcasts, a device that comes and goes, and a store that answers when it likes."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clarion.push.model import PushPriority
from tests.factories import DAY
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway, Phone

# What happens, or who of those that wait in the store goes on.
Act = str | tuple[str, PushPriority, str | None] | int
ACTS: st.SearchStrategy[list[Act]] = st.lists(
    st.one_of(
        st.sampled_from(["connect", "disconnect", "acknowledge", "window", "back", "front"]),
        st.tuples(
            st.sampled_from(["push", "publish"]),
            st.sampled_from(PushPriority),
            st.sampled_from([None, None, "c"]),
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=15,
    max_size=40,
)


class Day:
    """One device and what happens to it, in an order that the test draws."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        self.phone: Phone | None = None
        self.got: list[str] = []
        self.collapse_ids: dict[str, str | None] = {}
        self.tasks: list[asyncio.Future[Any]] = []

    async def act(self, act: Act) -> None:
        match act:
            case int():
                await self.gateway.gates.let_pass(act)
            case str():
                self.do(act, self.phone)
            case (kind, priority, collapse_id):
                self.send(kind, priority, collapse_id)
        await settle()

    def do(self, act: str, phone: Phone | None) -> None:
        if act == "connect":
            self.come()
        elif phone is None:
            return
        elif act == "disconnect":
            self.gateway.dispatch.disconnect(phone)
        elif act == "acknowledge":
            phone.acknowledge(3)
        elif phone.session.is_ready and act == "window":
            phone.carry_out(phone.session.open_window())
        elif phone.session.is_ready:
            phone.say(type="state", foreground=act == "front")

    def send(self, kind: str, priority: PushPriority, collapse_id: str | None) -> None:
        name = f"{len(self.collapse_ids):03}"
        self.collapse_ids[name] = collapse_id
        values: dict[str, Any] = {
            "priority": priority,
            "collapse_id": collapse_id,
            "expires_at": self.gateway.clock.now() + DAY,
        }
        if kind == "push":
            self.tasks.append(asyncio.ensure_future(self.gateway.push(name, **values)))
        else:
            self.tasks.append(asyncio.ensure_future(self.gateway.publish(id=name, **values)))

    def come(self) -> None:
        """Connect (again): what is not acknowledged may come again now."""
        if self.phone:
            self.got += self.phone.ids
        self.phone = self.gateway.start_connecting()

    async def end(self) -> None:
        """Let everything come to its end, with a device that takes everything."""
        if self.phone is None or self.phone.session.is_closed:
            self.come()
        assert self.phone
        await self.gateway.gates.let_all_pass()
        for act in ("front", "window"):
            self.do(act, self.phone)
            await self.gateway.gates.let_all_pass()
        while self.phone.unacknowledged:
            self.phone.acknowledge()
            await self.gateway.gates.let_all_pass()
        self.got += self.phone.ids
        await asyncio.gather(*self.tasks)


@settings(max_examples=150)
@given(acts=ACTS)
async def test_nothing_is_missed_in_any_interleaving(acts: list[Act]) -> None:
    day = Day()
    await day.gateway.subscribe()
    # Between nodes, an older message may be stored after the newer one that replaces it.
    day.gateway.gates.keep_order = True
    day.gateway.gates.are_open = False
    for act in acts:
        await day.act(act)
    await day.end()
    # Of those that replace each other the last has come, which nobody can tell by the name.
    assert set(day.got) >= {name for name, place in day.collapse_ids.items() if place is None}
    assert set(day.got) <= set(day.collapse_ids)
    assert await day.gateway.stored() == []
    assert await day.gateway.cursor() == await day.gateway.last_sequence()
    day.gateway.gates.are_open = True
    assert (await day.gateway.connect()).ids == []
