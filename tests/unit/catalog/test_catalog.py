"""The catalog: cached, and current at once after a change."""

import asyncio

import pytest

from clarion.catalog import built_in
from clarion.catalog.catalog import CACHED_MS, Catalog
from clarion.catalog.model import CategoryDefinition, Channel, NotificationType
from clarion.catalog.sql import Categories, Templates, Types
from tests.factories import DAY, FixedClock, make_template, make_type
from tests.recorded_bus import RecordedHub
from tests.replacing import replace
from tests.sandbox import DirectSandbox
from tests.unit.conftest import MemoryEngine


class CountedTypes(Types):
    """The types of apps, counting reads; one that is under way can be made to wait."""

    reads = 0
    pause: asyncio.Event | None = None

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        self.reads += 1
        found = await super().get(app_id, type_name)
        if self.pause:
            await self.pause.wait()
        return found


@pytest.fixture
def types(engine: MemoryEngine) -> CountedTypes:
    return CountedTypes(engine)  # type: ignore[arg-type]


@pytest.fixture
def templates(engine: MemoryEngine) -> Templates:
    return Templates(engine)  # type: ignore[arg-type]


@pytest.fixture
def categories(engine: MemoryEngine) -> Categories:
    return Categories(engine)  # type: ignore[arg-type]


@pytest.fixture
def catalog(
    types: CountedTypes, categories: Categories, templates: Templates, clock: FixedClock
) -> Catalog:
    return Catalog(types, categories, templates, clock, DirectSandbox())


async def test_a_built_in_type_is_there_from_the_start(catalog: Catalog) -> None:
    entry = await catalog.find("app", "POST_LIKE")
    assert entry is not None
    assert entry.type == built_in.TYPES["POST_LIKE"]
    assert entry.channels == {Channel.IN_APP, Channel.PUSH, Channel.EMAIL, Channel.SMS}
    assert entry.schema is None


async def test_an_unknown_type_is_none(catalog: Catalog) -> None:
    assert await catalog.find("app", "NOTHING") is None


async def test_what_an_app_has_defined_overrides_the_built_in_type(
    catalog: Catalog, types: CountedTypes, templates: Templates
) -> None:
    changed = replace(built_in.TYPES["POST_LIKE"], is_active=False)
    template = make_template("POST_LIKE", channel=Channel.PUSH, body="Mine")
    await types.put("app", changed, 1)
    await templates.put("app", template)
    entry = await catalog.find("app", "POST_LIKE")
    assert entry is not None
    assert entry.type == changed
    assert entry.pick(Channel.PUSH, "en") == template
    assert entry.pick(Channel.IN_APP, "en") == built_in.TEMPLATES["POST_LIKE"][0]


@pytest.mark.parametrize("name", ["POST_LIKE", "NOTHING"])
async def test_an_entry_is_cached_for_a_while(
    catalog: Catalog, types: CountedTypes, clock: FixedClock, name: str
) -> None:
    for advance, reads in ((0, 1), (CACHED_MS - 1, 1), (1, 2), (0, 2)):
        clock.advance(advance)
        await catalog.find("app", name)
        assert types.reads == reads


@pytest.mark.parametrize("step", [-DAY, DAY])
async def test_a_clock_that_is_set_neither_ends_nor_prolongs_the_cache(
    catalog: Catalog, types: CountedTypes, clock: FixedClock, step: int
) -> None:
    await catalog.find("app", "POST_LIKE")
    clock.step(step)
    await catalog.find("app", "POST_LIKE")
    assert types.reads == 1
    clock.advance(CACHED_MS)
    await catalog.find("app", "POST_LIKE")
    assert types.reads == 2


async def test_a_forgotten_entry_is_read_again(catalog: Catalog, types: CountedTypes) -> None:
    await catalog.find("app", "MINE")
    await types.put("app", make_type("MINE"), 1)
    catalog.forget("app", "MINE")
    entry = await catalog.find("app", "MINE")
    assert entry is not None
    assert entry.type == make_type("MINE")


async def test_a_read_during_a_change_is_not_cached(catalog: Catalog, types: CountedTypes) -> None:
    types.pause = asyncio.Event()
    finding = asyncio.create_task(catalog.find("app", "MINE"))
    await asyncio.sleep(0)
    await types.put("app", make_type("MINE"), 1)
    catalog.forget("app", "MINE")
    types.pause.set()
    assert await finding is None
    assert await catalog.find("app", "MINE") is not None


async def test_one_of_many_concurrent_callers_reads(catalog: Catalog, types: CountedTypes) -> None:
    types.pause = asyncio.Event()
    tasks = [asyncio.create_task(catalog.find("app", "POST_LIKE")) for _ in range(20)]
    await asyncio.sleep(0)
    types.pause.set()
    entries = await asyncio.gather(*tasks)
    assert types.reads == 1
    assert all(entry is entries[0] for entry in entries)


async def test_the_list_holds_built_in_and_own_types(catalog: Catalog, types: CountedTypes) -> None:
    changed = replace(built_in.TYPES["POST_LIKE"], is_active=False)
    for each in (changed, make_type("ABC"), make_type("ZZZ")):
        await types.put("app", each, 1)
    listed = await catalog.list_types("app")
    assert [each.type for each in listed] == sorted({*built_in.TYPES, "ABC", "ZZZ"})
    assert changed in listed


async def test_what_users_must_get_they_cannot_turn_off_by_its_type(
    catalog: Catalog, types: CountedTypes, categories: Categories
) -> None:
    billing = CategoryDefinition(name="billing", title="Bills", user_can_disable=False)
    await categories.put("app", billing)
    await types.put("app", make_type("BILL", category="billing"), 1)
    entry = await catalog.find("app", "BILL")
    assert entry is not None
    assert not entry.type.user_can_disable
    (listed,) = [each for each in await catalog.list_types("app") if each.type == "BILL"]
    assert listed == entry.type
    await categories.put("app", replace(billing, user_can_disable=True))
    catalog.forget_app("other")
    assert await catalog.find("app", "BILL") is entry
    catalog.forget_app("app")
    entry = await catalog.find("app", "BILL")
    assert entry is not None
    assert entry.type.user_can_disable


async def test_built_in_categories_come_first(catalog: Catalog, categories: Categories) -> None:
    await categories.put("app", CategoryDefinition(name="a", title="A"))
    names = [each.name for each in await catalog.list_categories("app")]
    assert names == [*built_in.CATEGORIES, "a"]


async def test_the_other_nodes_read_a_changed_type_when_they_are_told(
    types: CountedTypes, categories: Categories, templates: Templates, clock: FixedClock
) -> None:
    hub = RecordedHub()
    here, there = (Catalog(types, categories, templates, clock, DirectSandbox()) for _ in range(2))
    buses = [hub.join(), hub.join()]
    for each, bus in zip((here, there), buses, strict=True):
        each.forget.join(bus)
        each.forget_app.join(bus)
    tellings = (
        lambda: here.forget("app", "OWN"),
        lambda: here.forget_app("app"),
        buses[1].miss,
    )
    for number, tell in enumerate(tellings):
        before = await there.find("app", "OWN")
        await types.put("app", make_type("OWN", display_name=f"{number}"), 1)
        assert await there.find("app", "OWN") is before
        tell()
        await asyncio.sleep(0)
        entry = await there.find("app", "OWN")
        assert entry is not None
        assert entry.type.display_name == f"{number}"
