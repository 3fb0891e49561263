"""What a notification says, and what is missing before anything is stored."""

from dataclasses import replace

import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import Entry, build_entry
from clarion.catalog.model import Channel, Template
from clarion.errors import InvalidFields, NotFound
from clarion.events.model import Actor, Content, Target
from clarion.events.wording import try_words, word
from clarion.people.model import User
from tests.factories import NOW

ANA = User(app_id="a", id="ana", name="Ana", created_at=NOW, updated_at=NOW)
FULL = Content(actor=Actor("bo", "Bo"), target=Target("p1", "post"))


def kind(body: str, channel: Channel = Channel.IN_APP) -> Entry:
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
    return build_entry(replace(built_in.TYPES["POST_LIKE"], type="OWN"), (template,))


@pytest.mark.parametrize("name", built_in.TYPES)
def test_the_ready_made_words_need_neither_actor_nor_target(name: str) -> None:
    ready = build_entry(built_in.TYPES[name], ())
    try_words(ready, tuple(Channel), Content())
    assert word(ready, Channel.IN_APP, replace(ANA, name=None), Content(), 1).body


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (Content(), "actor"),
        (Content(actor=Actor("bo", None)), "actor.name"),
        (replace(FULL, actor=None), "actor"),
    ],
)
def test_an_actor_that_is_shown_must_be_there(content: Content, field: str) -> None:
    with pytest.raises(InvalidFields) as raised:
        try_words(kind("{{ actor.name }} was here"), (Channel.IN_APP,), content)
    assert [fault.field for fault in raised.value.faults] == [field]


def test_a_target_that_is_asked_for_may_be_missing() -> None:
    spoken = kind("{% if target.id %}{{ target.id }}{% else %}it{% endif %}")
    try_words(spoken, (Channel.IN_APP,), Content())
    assert word(spoken, Channel.IN_APP, ANA, Content(), 1).body == "it"
    assert word(spoken, Channel.IN_APP, ANA, FULL, 1).body == "p1"


def test_only_the_channels_of_the_event_count() -> None:
    try_words(kind("{{ actor.name }}"), (Channel.PUSH,), Content())
    with pytest.raises(InvalidFields):
        try_words(kind("{{ actor.name }}"), (Channel.PUSH, Channel.IN_APP), Content())


def test_the_stub_says_what_the_inbox_says() -> None:
    spoken = kind("{{ actor.name }} was here")
    inbox = word(spoken, Channel.IN_APP, ANA, FULL, 1)
    assert word(spoken, Channel.STUB, ANA, FULL, 1) == inbox
    assert inbox.body == "Bo was here"


def test_a_channel_without_words_says_so() -> None:
    with pytest.raises(NotFound, match="OWN has no template for sms"):
        word(kind("x"), Channel.SMS, ANA, FULL, 1)
