"""The `Categories` port, and the types that use them."""

import asyncio

import pytest

from clarion.catalog.model import Category, CategoryDefinition, Channel
from clarion.catalog.sql import CATEGORIES_LIMIT, Categories, Types
from clarion.errors import Conflict
from clarion.store.engine import Engine
from tests.factories import NOW, make_type, new_app_id
from tests.replacing import replace

FULL = CategoryDefinition(
    name="billing",
    title="Bills & ünïcode",
    description="What you owe.",
    default_channels=(Channel.IN_APP, Channel.EMAIL),
    user_can_disable=False,
    created_at=NOW,
    updated_at=NOW,
)
PLAIN = CategoryDefinition(name="plain", title="Plain", created_at=NOW, updated_at=NOW)


@pytest.fixture
def categories(engine: Engine) -> Categories:
    return Categories(engine)


@pytest.fixture
def app_id() -> str:
    return new_app_id()


@pytest.mark.parametrize("category", [FULL, PLAIN], ids=["full", "plain"])
async def test_a_category_comes_back_as_put(
    categories: Categories, app_id: str, category: CategoryDefinition
) -> None:
    assert await categories.put(app_id, category) == (category, True)
    assert await categories.get(app_id, category.name) == category
    assert await categories.list(app_id) == (category,)


async def test_put_again_replaces_all_but_when_it_was_created(
    categories: Categories, app_id: str
) -> None:
    await categories.put(app_id, FULL)
    new = replace(PLAIN, name=FULL.name, created_at=NOW + 5, updated_at=NOW + 5)
    expected = replace(new, created_at=NOW)
    assert await categories.put(app_id, new) == (expected, False)
    assert await categories.list(app_id) == (expected,)


async def test_a_category_belongs_to_one_app(categories: Categories, app_id: str) -> None:
    await categories.put(app_id, FULL)
    other = new_app_id()
    assert await categories.get(other, FULL.name) is None
    assert await categories.list(other) == ()
    assert not await categories.delete(other, FULL.name)
    assert await categories.get(app_id, FULL.name) == FULL


async def test_an_app_has_a_limited_number(categories: Categories, app_id: str) -> None:
    many = [replace(PLAIN, name=f"c{n:02}") for n in range(CATEGORIES_LIMIT + 5)]
    done = await asyncio.gather(*(categories.put(app_id, each) for each in many))
    assert sum(each is not None for each in done) == CATEGORIES_LIMIT
    stored = await categories.list(app_id)
    assert len(stored) == CATEGORIES_LIMIT
    assert [each.name for each in stored] == sorted(each.name for each in stored)
    # One that there is can still be changed, and another takes the place of one that is deleted.
    assert await categories.put(app_id, replace(stored[0], title="New")) is not None
    assert await categories.put(app_id, FULL) is None
    assert await categories.delete(app_id, stored[0].name)
    assert await categories.put(app_id, FULL) is not None


async def test_a_type_needs_its_category(types: Types, categories: Categories, app_id: str) -> None:
    own = make_type(category=FULL.name)
    assert not await types.put(app_id, own, NOW)
    assert await types.get(app_id, own.type) is None
    await categories.put(app_id, FULL)
    assert await types.put(app_id, own, NOW)
    assert await types.get(app_id, own.type) == own
    assert not await types.put(app_id, replace(own, category="other"), NOW)
    assert await types.get(app_id, own.type) == own


@pytest.mark.parametrize("way", ["another category", "deleted"])
async def test_a_category_in_use_cannot_be_deleted(
    types: Types, categories: Categories, app_id: str, way: str
) -> None:
    await categories.put(app_id, FULL)
    own = make_type("BILL", category=FULL.name)
    await types.put(app_id, own, NOW)
    with pytest.raises(Conflict, match="BILL has this category"):
        await categories.delete(app_id, FULL.name)
    assert await categories.get(app_id, FULL.name) == FULL
    if way == "deleted":
        await types.delete(app_id, "BILL")
    else:
        await types.put(app_id, replace(own, category=Category.NEWS), NOW)
    assert await categories.delete(app_id, FULL.name)
    assert not await categories.delete(app_id, FULL.name)


async def test_no_type_is_left_without_its_category(
    engine: Engine, other_node: Engine, app_id: str
) -> None:
    """A type is put on one node while its category is deleted on another, and on the same."""
    nodes = [(Types(each), Categories(each)) for each in (engine, other_node)]
    for turn in range(20):
        name = f"c{turn}"
        await nodes[0][1].put(app_id, replace(PLAIN, name=name))
        own = make_type(f"T{turn}", category=name)
        put, *_ = await asyncio.gather(
            nodes[turn % 2][0].put(app_id, own, NOW),
            *(categories.delete(app_id, name) for _, categories in nodes),
            return_exceptions=True,
        )
        left = await nodes[0][1].get(app_id, name)
        assert put is (left is not None), turn
        assert (await nodes[0][0].get(app_id, own.type) is not None) is put
