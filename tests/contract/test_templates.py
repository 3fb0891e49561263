"""The `Templates` port."""

import asyncio

import pytest

from clarion.catalog.model import Channel, Template
from clarion.catalog.sql import Templates
from clarion.errors import Conflict, InvalidFields
from clarion.store.engine import Engine
from tests.factories import make_template
from tests.replacing import replace

PLACE = ("app", "ORDER_SHIPPED", Channel.EMAIL, "en")


async def test_a_template_comes_back_with_its_version(templates: Templates) -> None:
    for version in (1, 2, 3):
        written = await templates.put("app", make_template(version=0, body=f"Body {version}"))
        assert written == make_template(version=version, body=f"Body {version}")
        assert await templates.list(*PLACE[:2]) == (written,)


async def test_a_template_can_be_bare(templates: Templates) -> None:
    bare = make_template(subject=None, variables=(), body="ü")
    assert await templates.put("app", bare) == bare


async def test_each_place_counts_for_itself(templates: Templates) -> None:
    places = [
        make_template(),
        make_template(language="pt-BR"),
        make_template(channel=Channel.SMS),
        make_template("OTHER"),
    ]
    for template in places:
        assert await templates.put("app", template) == template
    assert await templates.put("other", make_template()) == make_template()


@pytest.mark.parametrize(
    "place",
    [
        ("other", *PLACE[1:]),
        ("app", "OTHER", *PLACE[2:]),
        (*PLACE[:2], Channel.SMS, "en"),
        (*PLACE[:3], "de"),
    ],
)
async def test_what_is_not_there_is_none(
    templates: Templates, place: tuple[str, str, Channel, str]
) -> None:
    await templates.put("app", make_template())
    page = await templates.versions(*place, after=None, limit=9)
    assert (page.items, page.next) == ((), None)


async def test_the_list_holds_the_newest_of_each_place(templates: Templates) -> None:
    written = [
        await templates.put("app", make_template(channel=channel, language=language))
        for channel in (Channel.EMAIL, Channel.SMS)
        for language in ("de", "en")
        for _ in range(2)
    ]
    await templates.put("app", make_template("OTHER"))
    assert await templates.list("app", "ORDER_SHIPPED") == tuple(written[1::2])
    assert await templates.list("other", "ORDER_SHIPPED") == ()


async def test_versions_come_newest_first_in_pages(templates: Templates) -> None:
    for _ in range(3):
        await templates.put("app", make_template())
    first = await templates.versions(*PLACE, after=None, limit=2)
    assert [each.version for each in first.items] == [3, 2]
    last = await templates.versions(*PLACE, after=first.next, limit=2)
    assert ([each.version for each in last.items], last.next) == ([1], None)


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 5_000, "²"])
async def test_a_cursor_that_no_page_gave_is_refused(templates: Templates, after: str) -> None:
    with pytest.raises(InvalidFields):
        await templates.versions(*PLACE, after=after, limit=2)


async def test_no_version_is_given_twice(templates: Templates, other_node: Engine) -> None:
    nodes = (templates, Templates(other_node))

    async def write(number: int) -> Template | Conflict:
        template = make_template(body=f"Body {number}")
        try:
            written = await nodes[number % 2].put("app", template)
        except Conflict as conflict:
            return conflict
        assert written == replace(template, version=written.version)
        return written

    done = await asyncio.gather(*(write(number) for number in range(8)))
    written = [each for each in done if isinstance(each, Template)]
    page = await templates.versions(*PLACE, after=None, limit=99)
    assert sorted(page.items, key=lambda each: each.version) == sorted(
        written, key=lambda each: each.version
    )
    assert [each.version for each in page.items] == list(range(len(written), 0, -1))


async def test_old_versions_are_deleted(templates: Templates) -> None:
    for _ in range(53):
        await templates.put("app", make_template())
    await templates.put("app", make_template(language="de"))
    kept = (await templates.versions(*PLACE, after=None, limit=99)).items
    assert [each.version for each in kept] == list(range(53, 3, -1))
    assert (await templates.count("app"), await templates.count("other")) == (51, 0)
