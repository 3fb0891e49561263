"""The `Types` port."""

import pytest

from clarion.catalog.model import (
    Category,
    Channel,
    Dedupe,
    DedupeMode,
    Digest,
    NotificationType,
    Overflow,
    Priority,
    RateLimit,
)
from clarion.catalog.sql import Templates, Types
from tests.factories import NOW, make_template, make_type

FULL = make_type(
    "FULL",
    category=Category.SECURITY,
    default_channels=tuple(Channel),
    optional_channels=(Channel.SMS, Channel.PUSH),
    priority=Priority.CRITICAL,
    user_can_disable=False,
    is_active=False,
    rate_limit=RateLimit(per_user_per_hour=3, overflow=Overflow.DIGEST),
    dedupe=Dedupe(window_s=60, mode=DedupeMode.AGGREGATE),
    digest=Digest(window_s=3_600),
    data_schema={"type": "object", "properties": {"ü": {"enum": [1, None, "\x00"]}}},
)


@pytest.mark.parametrize("definition", [FULL, make_type()], ids=["full", "plain"])
async def test_a_type_comes_back_as_put(types: Types, definition: NotificationType) -> None:
    await types.put("app", definition, NOW)
    assert await types.get("app", definition.type) == definition


async def test_put_again_replaces(types: Types) -> None:
    await types.put("app", FULL, NOW)
    await types.put("app", make_type("FULL"), NOW + 1)
    assert await types.list("app") == (make_type("FULL"),)


async def test_a_type_belongs_to_one_app(types: Types) -> None:
    await types.put("app", make_type(), NOW)
    assert await types.get("other", "ORDER_SHIPPED") is None
    assert await types.list("other") == ()
    assert not await types.delete("other", "ORDER_SHIPPED")


async def test_the_list_is_in_the_order_of_names(types: Types) -> None:
    for name in ("C", "A", "B"):
        await types.put("app", make_type(name), NOW)
    assert [each.type for each in await types.list("app")] == ["A", "B", "C"]


async def test_deleting_takes_the_templates_along(types: Types, templates: Templates) -> None:
    await types.put("app", make_type("A"), NOW)
    await types.put("app", make_type("B"), NOW)
    for name in ("A", "B"):
        await templates.put("app", make_template(name))
    assert await types.delete("app", "A")
    assert await types.get("app", "A") is None
    assert await templates.list("app", "A") == ()
    assert len(await templates.list("app", "B")) == 1
    assert not await types.delete("app", "A")


async def test_templates_without_a_definition_are_deleted_too(
    types: Types, templates: Templates
) -> None:
    await templates.put("app", make_template("POST_LIKE"))
    assert await types.delete("app", "POST_LIKE")
    assert await templates.list("app", "POST_LIKE") == ()


async def test_the_definitions_of_an_app_are_measured(types: Types) -> None:
    assert await types.measure("app", "ANY") == (0, 0)
    await types.put("app", FULL, NOW)
    count, size = await types.measure("app", "ANY")
    assert count == 1
    assert size > 300
    assert await types.measure("app", "FULL") == (0, 0)
    assert await types.measure("other", "ANY") == (0, 0)
