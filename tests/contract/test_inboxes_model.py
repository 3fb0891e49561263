"""The `Inboxes` port against a model: a plain list and a number, one action after the other."""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.catalog.model import Category
from clarion.history.model import Notification
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.port import Inboxes
from clarion.inbox.sql.inboxes import SqlInboxes
from clarion.store.engine import Engine
from tests.factories import NOW, new_app_id
from tests.inbox import list_inbox, put
from tests.replacing import replace

PLACES = 6
LAST = 100


@pytest.fixture
def inboxes(engine: Engine) -> Inboxes:
    return SqlInboxes(engine)


@dataclass
class Model:
    """What the inbox of one user should be."""

    app_id: str
    now: int = NOW
    sequence: int = 0
    items: list[Notification] = field(default_factory=list)

    def change(self, place: int, **changes: int | None) -> None:
        self.sequence += 1
        self.items[place] = replace(self.items[place], sequence=self.sequence, **changes)

    def is_listed(self, place: int) -> bool:
        return self.items[place].dismissed_at is None

    def is_unread(self, place: int) -> bool:
        return self.is_listed(place) and self.items[place].read_at is None

    @property
    def unread(self) -> list[int]:
        return [place for place in range(len(self.items)) if self.is_unread(place)]

    @property
    def state(self) -> InboxState:
        return InboxState(len(self.unread), self.sequence)

    @property
    def listed(self) -> list[Notification]:
        return [each for each in reversed(self.items) if each.dismissed_at is None]

    def changes(self, after: int) -> list[Notification]:
        found = [each for each in self.items if each.sequence > after]
        return sorted(found, key=lambda each: each.sequence)


@dataclass(frozen=True)
class Put:
    """Something new comes in."""

    category: Category

    async def run(self, engine: Engine, inboxes: Inboxes, model: Model) -> None:
        assert inboxes is not None
        made = await put(engine, model.app_id, category=self.category, now=model.now)
        model.sequence += 1
        assert made.sequence == model.sequence
        model.items.append(made)


@dataclass(frozen=True)
class Apply:
    """A user applies an action to one of them, or to one that does not exist."""

    action: InboxAction
    place: int

    async def run(self, engine: Engine, inboxes: Inboxes, model: Model) -> None:
        assert engine is not None
        model.now += 1
        apply = partial(inboxes.apply, self.action, model.app_id, "ana")
        if self.place >= len(model.items):
            assert await apply(f"{self.place}", model.now) is None
            return
        self.apply_to(model)
        item = model.items[self.place]
        assert await apply(item.id, model.now) == item

    def apply_to(self, model: Model) -> None:
        is_unread, is_listed = model.is_unread(self.place), model.is_listed(self.place)
        match self.action:
            case InboxAction.READ if is_unread:
                model.change(self.place, read_at=model.now)
            case InboxAction.UNREAD if is_listed and not is_unread:
                model.change(self.place, read_at=None)
            case InboxAction.DISMISS if is_listed:
                model.change(self.place, dismissed_at=model.now)


@dataclass(frozen=True)
class ReadAll:
    """A user reads everything."""

    async def run(self, engine: Engine, inboxes: Inboxes, model: Model) -> None:
        assert engine is not None
        model.now += 1
        for place in model.unread:
            model.change(place, read_at=model.now)
        assert await inboxes.read_all(model.app_id, "ana", model.now) == model.state


@dataclass(frozen=True)
class Forget:
    """Some are deleted; those that were unread count no more."""

    places: frozenset[int]

    async def run(self, engine: Engine, inboxes: Inboxes, model: Model) -> None:
        assert engine is not None
        gone = [item.id for place, item in enumerate(model.items) if place in self.places]
        await inboxes.forget(model.app_id, "ana", [*gone, "nothing"])
        model.items = [item for item in model.items if item.id not in gone]


PUTS = st.builds(Put, st.sampled_from([Category.SOCIAL, Category.NEWS]))
ACTIONS = st.builds(Apply, st.sampled_from(InboxAction), st.integers(0, PLACES))
FORGETS = st.builds(Forget, st.frozensets(st.integers(0, PLACES), max_size=3))
STEPS = st.lists(st.one_of(PUTS, ACTIONS, ACTIONS, FORGETS, st.builds(ReadAll)), max_size=20)
# One database serves all examples: each has an app of its own.
ON_BOTH = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ON_BOTH
@given(steps=STEPS)
async def test_the_store_does_what_a_plain_list_does(
    engine: Engine, inboxes: Inboxes, steps: list[Put | Apply | Forget | ReadAll]
) -> None:
    model = Model(new_app_id())
    for step in steps:
        before = model.sequence
        await step.run(engine, inboxes, model)
        assert await inboxes.state(model.app_id, "ana") == model.state
        changed = await inboxes.changes(model.app_id, "ana", before, LAST)
        assert list(changed) == model.changes(before)
    await compare_lists(engine, model)


async def compare_lists(engine: Engine, model: Model) -> None:
    for unread in (True, False):
        for category in (None, Category.NEWS):
            listed = await list_inbox(engine, model.app_id, unread=unread, category=category)
            assert listed == [
                each
                for each in model.listed
                if (not unread or each.read_at is None) and category in (None, each.category)
            ]


@ON_BOTH
@given(actions=st.lists(ACTIONS, max_size=12), others=st.lists(ACTIONS, max_size=12))
async def test_whatever_two_nodes_do_at_once_the_count_is_exact(
    engine: Engine, other_node: Engine, actions: list[Apply], others: list[Apply]
) -> None:
    app_id, here, there = new_app_id(), SqlInboxes(engine), SqlInboxes(other_node)
    made = [await put(engine, app_id) for _ in range(PLACES)]
    pairs = [(here, each) for each in actions] + [(there, each) for each in others]
    doing = [
        node.apply(each.action, app_id, "ana", made[each.place].id, NOW)
        for node, each in pairs
        if each.place < PLACES
    ]
    await asyncio.gather(*doing, put(other_node, app_id), here.read_all(app_id, "ana", NOW))
    unread = await list_inbox(engine, app_id, unread=True)
    changes = await there.changes(app_id, "ana", 0, LAST)
    state = InboxState(len(unread), max(each.sequence for each in changes))
    assert await there.state(app_id, "ana") == state
    assert len({each.sequence for each in changes}) == PLACES + 1


def test_the_model_itself_counts() -> None:
    model = Model("app", items=[])
    assert model.state == InboxState(0, 0)
    assert model.listed == model.changes(0) == []
