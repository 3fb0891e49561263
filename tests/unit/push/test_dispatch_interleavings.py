"""Pushes, broadcasts, a device that connects and disconnects, a store that answers in any order."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clarion.push.model import PushPriority
from tests.factories import DAY
from tests.unit.push.gates import settle
from tests.unit.push.phone import Gateway, Phone

# What happens, or which of the paused reads and writes goes on.
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


class Scenario:
    """One device, and what happens to it in an order that the test draws."""

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
            case (verb, priority, collapse_id):
                self.send(verb, priority, collapse_id)
        await settle()

    def do(self, act: str, phone: Phone | None) -> None:
        if act == "connect":
            self.connect()
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

    def send(self, verb: str, priority: PushPriority, collapse_id: str | None) -> None:
        name = f"{len(self.collapse_ids):03}"
        self.collapse_ids[name] = collapse_id
        values: dict[str, Any] = {
            "priority": priority,
            "collapse_id": collapse_id,
            "expires_at": self.gateway.clock.now() + DAY,
        }
        if verb == "push":
            self.tasks.append(asyncio.ensure_future(self.gateway.push(name, **values)))
        else:
            self.tasks.append(asyncio.ensure_future(self.gateway.publish(id=name, **values)))

    def connect(self) -> None:
        """Connect (again): what is not acknowledged may be sent again now."""
        if self.phone:
            self.got += self.phone.ids
        self.phone = self.gateway.start_connecting()

    async def end(self) -> None:
        """Finish everything, with a device that accepts everything."""
        if self.phone is None or self.phone.session.is_closed:
            self.connect()
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
    scenario = Scenario()
    await scenario.gateway.subscribe()
    # Between nodes, an older message may be stored after the newer one that replaces it.
    scenario.gateway.gates.keep_order = True
    scenario.gateway.gates.are_open = False
    for act in acts:
        await scenario.act(act)
    await scenario.end()
    # Of those that replace each other the last was sent; which one that is depends on the order.
    assert set(scenario.got) >= {
        name for name, place in scenario.collapse_ids.items() if place is None
    }
    assert set(scenario.got) <= set(scenario.collapse_ids)
    assert await scenario.gateway.stored() == []
    assert await scenario.gateway.cursor() == await scenario.gateway.last_sequence()
    scenario.gateway.gates.are_open = True
    assert (await scenario.gateway.connect()).ids == []
