"""The built-in types and their templates."""

import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import build_entry
from clarion.catalog.model import (
    MANDATORY_CATEGORIES,
    PUBLISHED,
    Category,
    Channel,
    NotificationType,
)
from clarion.catalog.rendering.templates import check_template
from tests.sandbox import run_directly


@pytest.mark.parametrize("definition", built_in.TYPES.values(), ids=list(built_in.TYPES))
def test_built_in_types_follow_their_category(definition: NotificationType) -> None:
    channels = set(definition.default_channels)
    assert channels <= {each.channel for each in built_in.TEMPLATES[definition.type]}
    assert definition.user_can_disable is (definition.category not in MANDATORY_CATEGORIES)
    assert Channel.SMS not in channels or definition.category in MANDATORY_CATEGORIES
    assert (definition.dedupe is not None) is (definition.category == Category.SOCIAL)
    assert definition.rate_limit is None


def test_there_are_thirteen_and_their_templates_are_valid() -> None:
    assert len(built_in.TYPES) == 13
    for name, templates in built_in.TEMPLATES.items():
        # An event of this type may be without them; whoever publishes gives them.
        variables = ("title", "message") if name == PUBLISHED else ()
        for each in templates:
            assert each.variables == ()
            check_template(each.subject, each.body, variables)


async def test_what_is_published_is_text_in_an_email_and_keeps_its_lines() -> None:
    entry = build_entry(built_in.TYPES[PUBLISHED], (), run_directly)
    context = {"title": "<b>T</b>", "message": "<script>1</script>\nline & two", "count": 1}
    text = await entry.render(Channel.EMAIL, "en", context)
    assert text.subject == "<b>T</b>"
    assert '<p style="white-space: pre-line">&lt;script&gt;' in text.body
    assert "\nline &amp; two</p>" in text.body
