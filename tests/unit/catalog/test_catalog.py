"""Kinds: found from memory, right at once after a change, in the best language there is."""

import asyncio
from dataclasses import replace

import pytest

from clarion.catalog import built_in
from clarion.catalog.catalog import BELIEVED_MS, Catalog
from clarion.catalog.entry import Entry, build_entry
from clarion.catalog.model import (
    MANDATORY_CATEGORIES,
    Category,
    Channel,
    NotificationType,
    Template,
)
from clarion.catalog.rendering.templates import check_template
from clarion.catalog.schemas import compile_schema
from clarion.errors import FieldFault, InvalidFields
from clarion.pages import Page
from tests.factories import FixedClock, make_template, make_type


class MemoryTypes:
    """The `Types` port, counting reads."""

    def __init__(self) -> None:
        self.own: dict[tuple[str, str], NotificationType] = {}
        self.reads = 0
        self.pause: asyncio.Event | None = None

    async def put(self, app_id: str, definition: NotificationType, now: int) -> None:
        assert now
        self.own[app_id, definition.type] = definition

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        self.reads += 1
        found = self.own.get((app_id, type_name))
        if self.pause:
            await self.pause.wait()
        return found

    async def list(self, app_id: str) -> tuple[NotificationType, ...]:
        return tuple(each for (app, _), each in self.own.items() if app == app_id)

    async def delete(self, app_id: str, type_name: str) -> bool:
        return self.own.pop((app_id, type_name), None) is not None


class MemoryTemplates:
    """The `Templates` port."""

    def __init__(self) -> None:
        self.own: list[Template] = []

    async def put(self, app_id: str, template: Template) -> Template:
        assert app_id
        self.own.append(template)
        return template

    async def get(
        self, app_id: str, type_name: str, channel: Channel, language: str
    ) -> Template | None:
        raise NotImplementedError(app_id, type_name, channel, language)

    async def list(self, app_id: str, type_name: str) -> tuple[Template, ...]:
        assert app_id
        return tuple(each for each in self.own if each.type == type_name)

    async def versions(
        self,
        app_id: str,
        type_name: str,
        channel: Channel,
        language: str,
        *,
        after: str | None,
        limit: int,
    ) -> Page[Template]:
        raise NotImplementedError(app_id, type_name, channel, language, after, limit)


@pytest.fixture
def types() -> MemoryTypes:
    return MemoryTypes()


@pytest.fixture
def templates() -> MemoryTemplates:
    return MemoryTemplates()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def catalog(types: MemoryTypes, templates: MemoryTemplates, clock: FixedClock) -> Catalog:
    return Catalog(types, templates, clock)


async def test_a_ready_made_type_is_there_from_the_start(catalog: Catalog) -> None:
    kind = await catalog.find("app", "POST_LIKE")
    assert kind is not None
    assert kind.type == built_in.TYPES["POST_LIKE"]
    assert kind.channels == {Channel.IN_APP, Channel.PUSH, Channel.EMAIL, Channel.SMS}
    assert kind.schema is None


async def test_an_unknown_type_is_none(catalog: Catalog) -> None:
    assert await catalog.find("app", "NOTHING") is None


async def test_what_an_app_has_said_comes_first(
    catalog: Catalog, types: MemoryTypes, templates: MemoryTemplates
) -> None:
    changed = replace(built_in.TYPES["POST_LIKE"], is_active=False)
    words = make_template("POST_LIKE", channel=Channel.PUSH, body="Mine")
    await types.put("app", changed, 1)
    await templates.put("app", words)
    kind = await catalog.find("app", "POST_LIKE")
    assert kind is not None
    assert kind.type == changed
    assert kind.pick(Channel.PUSH, "en") == words
    assert kind.pick(Channel.IN_APP, "en") == built_in.TEMPLATES["POST_LIKE"][0]


@pytest.mark.parametrize("name", ["POST_LIKE", "NOTHING"])
async def test_a_kind_is_remembered_for_a_while(
    catalog: Catalog, types: MemoryTypes, clock: FixedClock, name: str
) -> None:
    for advance, reads in ((0, 1), (BELIEVED_MS - 1, 1), (1, 2), (0, 2)):
        clock.advance(advance)
        await catalog.find("app", name)
        assert types.reads == reads


async def test_a_clock_that_was_set_back_is_not_believed(
    catalog: Catalog, types: MemoryTypes, clock: FixedClock
) -> None:
    await catalog.find("app", "POST_LIKE")
    clock.advance(-1)
    await catalog.find("app", "POST_LIKE")
    assert types.reads == 2


async def test_what_was_forgotten_is_read_at_once(catalog: Catalog, types: MemoryTypes) -> None:
    await catalog.find("app", "MINE")
    await types.put("app", make_type("MINE"), 1)
    catalog.forget("app", "MINE")
    kind = await catalog.find("app", "MINE")
    assert kind is not None
    assert kind.type == make_type("MINE")


async def test_a_read_during_a_change_is_not_remembered(
    catalog: Catalog, types: MemoryTypes
) -> None:
    types.pause = asyncio.Event()
    finding = asyncio.create_task(catalog.find("app", "MINE"))
    await asyncio.sleep(0)
    await types.put("app", make_type("MINE"), 1)
    catalog.forget("app", "MINE")
    types.pause.set()
    assert await finding is None
    assert await catalog.find("app", "MINE") is not None


async def test_of_many_who_ask_at_once_one_reads(catalog: Catalog, types: MemoryTypes) -> None:
    types.pause = asyncio.Event()
    asking = [asyncio.create_task(catalog.find("app", "POST_LIKE")) for _ in range(20)]
    await asyncio.sleep(0)
    types.pause.set()
    kinds = await asyncio.gather(*asking)
    assert types.reads == 1
    assert all(kind is kinds[0] for kind in kinds)


async def test_the_list_holds_ready_made_and_own_types(
    catalog: Catalog, types: MemoryTypes
) -> None:
    changed = replace(built_in.TYPES["POST_LIKE"], is_active=False)
    for each in (changed, make_type("ABC"), make_type("ZZZ")):
        await types.put("app", each, 1)
    listed = await catalog.list_types("app")
    assert [each.type for each in listed] == sorted({*built_in.TYPES, "ABC", "ZZZ"})
    assert changed in listed


def kind_in(*languages: str) -> Entry:
    words = [make_template(language=language, channel=Channel.PUSH) for language in languages]
    return build_entry(make_type(), words)


@pytest.mark.parametrize(
    ("languages", "wanted", "picked"),
    [
        (["pt", "pt-BR", "en"], "pt-BR", "pt-BR"),
        (["pt", "en"], "pt-BR", "pt"),
        (["de", "en"], "pt-BR", "en"),
        (["fr", "de"], "pt-BR", "de"),
    ],
)
def test_the_best_language_is_picked(languages: list[str], wanted: str, picked: str) -> None:
    kind = kind_in(*languages)
    for _ in range(2):
        template = kind.pick(Channel.PUSH, wanted)
        assert template is not None
        assert template.language == picked


def test_without_words_for_a_channel_there_is_none() -> None:
    assert kind_in("en").pick(Channel.EMAIL, "en") is None


def test_picks_are_remembered_within_limits() -> None:
    kind = kind_in("en")
    for number in range(2_100):
        kind.pick(Channel.PUSH, f"x{number}")
    assert len(kind._picked) <= 1_000


def test_faults_name_what_the_schema_and_the_templates_miss() -> None:
    schema: dict[str, object] = {
        "required": ["a"],
        "properties": {"b": {"items": {"type": "integer"}}},
    }
    kind = build_entry(make_type(data_schema=schema), [make_template(variables=("order", "c"))])
    assert kind.required_variables([Channel.EMAIL]) == {"order", "c"}
    assert kind.find_faults({"b": [1, "x"], "c": None}, [Channel.EMAIL]) == (
        FieldFault("data.a", "is required"),
        FieldFault("data.b[1]", '"x" is not of type "integer"'),
        FieldFault("data.c", "is required by a template"),
        FieldFault("data.order", "is required by a template"),
    )
    assert kind.find_faults({"a": 1}, [Channel.PUSH]) == ()


@pytest.mark.parametrize(
    "document",
    [
        {"type": "objekt"},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"pattern": "("},
        {"$schema": "http://127.0.0.1:1/x"},
    ],
)
def test_what_is_no_schema_is_refused_and_nothing_is_fetched(document: dict[str, object]) -> None:
    with pytest.raises(InvalidFields, match=r"^data_schema: must be a JSON Schema: "):
        compile_schema("data_schema", document)


def test_a_regular_expression_cannot_run_away() -> None:
    schema = compile_schema("data_schema", {"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert schema.find_faults({"a": "a" * 5_000 + "!"})[0].field == "data.a"


@pytest.mark.parametrize("definition", built_in.TYPES.values(), ids=list(built_in.TYPES))
def test_ready_made_types_follow_their_category(definition: NotificationType) -> None:
    channels = set(definition.default_channels)
    assert channels <= {each.channel for each in built_in.TEMPLATES[definition.type]}
    assert definition.user_can_disable is (definition.category not in MANDATORY_CATEGORIES)
    assert Channel.SMS not in channels or definition.category in MANDATORY_CATEGORIES
    assert (definition.dedupe is not None) is (definition.category is Category.SOCIAL)
    assert definition.rate_limit is None


def test_there_are_twelve_and_their_words_can_be_read() -> None:
    assert len(built_in.TYPES) == 12
    for templates in built_in.TEMPLATES.values():
        for each in templates:
            check_template(each.subject, each.body, each.variables)
