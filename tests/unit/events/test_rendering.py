"""Rendering, and the check of what templates show before an event is stored."""

import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import CatalogEntry, build_entry
from clarion.catalog.model import Channel, Template
from clarion.errors import InvalidFields, NotFound
from clarion.events.rendering import check_context, render
from clarion.history.model import Actor, Content, Target
from clarion.people.model import User
from tests.factories import NOW
from tests.replacing import replace
from tests.sandbox import run_directly

ANA = User(app_id="a", id="ana", name="Ana", created_at=NOW, updated_at=NOW)
FULL = Content(actor=Actor("bo", "Bo"), target=Target("p1", "post"))


def make_entry(body: str, channel: Channel = Channel.IN_APP) -> CatalogEntry:
    template = Template(
        type="OWN",
        channel=channel,
        language="en",
        version=1,
        subject=None,
        body=body,
        variables=(),
        created_at=NOW,
    )
    return build_entry(replace(built_in.TYPES["POST_LIKE"], type="OWN"), (template,), run_directly)


@pytest.mark.parametrize("name", built_in.TYPES)
async def test_built_in_templates_need_neither_actor_nor_target(name: str) -> None:
    entry = build_entry(built_in.TYPES[name], (), run_directly)
    await check_context(entry, tuple(Channel), Content())
    assert (await render(entry, Channel.IN_APP, replace(ANA, name=None), Content(), 1)).body


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (Content(), "actor"),
        (Content(actor=Actor("bo", None)), "actor.name"),
        (replace(FULL, actor=None), "actor"),
    ],
)
async def test_an_actor_that_is_shown_must_be_there(content: Content, field: str) -> None:
    with pytest.raises(InvalidFields) as raised:
        await check_context(make_entry("{{ actor.name }} was here"), (Channel.IN_APP,), content)
    assert [fault.field for fault in raised.value.faults] == [field]


@pytest.mark.parametrize("channel", [Channel.STUB, Channel.WEBHOOK])
async def test_a_program_gets_the_text_of_the_inbox(channel: Channel) -> None:
    entry = make_entry("for the inbox")
    assert (await render(entry, channel, ANA, FULL, 1)).body == "for the inbox"
    entry = make_entry("of its own", channel)
    assert (await render(entry, channel, ANA, FULL, 1)).body == "of its own"


async def test_a_target_that_is_tested_for_may_be_missing() -> None:
    entry = make_entry("{% if target.id %}{{ target.id }}{% else %}it{% endif %}")
    await check_context(entry, (Channel.IN_APP,), Content())
    assert (await render(entry, Channel.IN_APP, ANA, Content(), 1)).body == "it"
    assert (await render(entry, Channel.IN_APP, ANA, FULL, 1)).body == "p1"


async def test_only_the_channels_of_the_event_count() -> None:
    await check_context(make_entry("{{ actor.name }}"), (Channel.PUSH,), Content())
    with pytest.raises(InvalidFields):
        await check_context(
            make_entry("{{ actor.name }}"), (Channel.PUSH, Channel.IN_APP), Content()
        )


async def test_a_channel_without_template_is_an_error() -> None:
    with pytest.raises(NotFound, match="OWN has no template for sms"):
        await render(make_entry("x"), Channel.SMS, ANA, FULL, 1)
