"""The built-in types and their templates."""

import pytest

from clarion.catalog import built_in
from clarion.catalog.model import MANDATORY_CATEGORIES, Category, Channel, NotificationType
from clarion.catalog.rendering.templates import check_template


@pytest.mark.parametrize("definition", built_in.TYPES.values(), ids=list(built_in.TYPES))
def test_built_in_types_follow_their_category(definition: NotificationType) -> None:
    channels = set(definition.default_channels)
    assert channels <= {each.channel for each in built_in.TEMPLATES[definition.type]}
    assert definition.user_can_disable is (definition.category not in MANDATORY_CATEGORIES)
    assert Channel.SMS not in channels or definition.category in MANDATORY_CATEGORIES
    assert (definition.dedupe is not None) is (definition.category is Category.SOCIAL)
    assert definition.rate_limit is None


def test_there_are_thirteen_and_their_templates_are_valid() -> None:
    assert len(built_in.TYPES) == 13
    for templates in built_in.TEMPLATES.values():
        for each in templates:
            check_template(each.subject, each.body, each.variables)
