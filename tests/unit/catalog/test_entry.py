"""An entry: the template in the nearest language, and the faults of data."""

import pytest

from clarion.catalog.entry import CatalogEntry, build_entry
from clarion.catalog.model import Channel
from clarion.errors import FieldFault, Overloaded
from tests.factories import make_template, make_type
from tests.sandbox import run_directly


def entry_in(*languages: str) -> CatalogEntry:
    templates = [make_template(language=language, channel=Channel.PUSH) for language in languages]
    return build_entry(make_type(), templates, run_directly)


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
    entry = entry_in(*languages)
    for _ in range(2):
        template = entry.pick(Channel.PUSH, wanted)
        assert template is not None
        assert template.language == picked


def test_a_channel_without_templates_has_none() -> None:
    assert entry_in("en").pick(Channel.EMAIL, "en") is None


def test_the_cache_of_picks_is_limited() -> None:
    entry = entry_in("en")
    for number in range(2_100):
        entry.pick(Channel.PUSH, f"x{number}")
    assert len(entry._picked) <= 1_000


async def test_faults_name_what_the_schema_and_the_templates_require() -> None:
    schema: dict[str, object] = {
        "required": ["a"],
        "properties": {"b": {"items": {"type": "integer"}}},
    }
    entry = build_entry(
        make_type(data_schema=schema), [make_template(variables=("order", "c"))], run_directly
    )
    assert await entry.find_faults({"b": [1, "x"], "c": None}, [Channel.EMAIL]) == (
        FieldFault("data.a", "is required"),
        FieldFault("data.b[1]", '"x" is not of type "integer"'),
        FieldFault("data.c", "is required by a template"),
        FieldFault("data.order", "is required by a template"),
    )
    assert await entry.find_faults({"a": 1}, [Channel.PUSH]) == ()


async def test_a_quick_entry_never_uses_the_sandbox() -> None:
    body = "{{ name }} for {{ order.id }}"
    template = make_template(channel=Channel.PUSH, subject=None, body=body)
    liquid = make_template(channel=Channel.SMS, subject=None, body="{{ name | upcase }}")
    entry = build_entry(make_type(), [template, liquid], run_directly)
    quick = entry.find_quick(Channel.PUSH)
    assert quick is not None
    context = {"name": "Ana", "order": {"id": 7}}
    rendered = await quick.render(Channel.PUSH, "en", context)
    assert rendered == await entry.render(Channel.PUSH, "en", context)
    assert rendered.body == "Ana for 7"
    unusual = {"name": "Ana", "order": {"id": [7]}}
    assert (await entry.render(Channel.PUSH, "en", unusual)).body == "Ana for 7"
    with pytest.raises(Overloaded):
        await quick.render(Channel.PUSH, "en", unusual)
    assert entry.find_quick(Channel.SMS) is None
