"""MJML that is not valid, or would lose a part of the template, is refused."""

import pytest

from clarion.catalog.rendering.mjml import convert
from clarion.catalog.rendering.templates import check_template
from clarion.errors import InvalidFields

START, END = "<mjml><mj-body><mj-section><mj-column>", "</mj-column></mj-section></mj-body></mjml>"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<mjml><mj-body>", "is not valid MJML"),
        ("<mjml>Hello</mjml>", "is not valid MJML"),
        (f"{START}<mj-text>{{% if a < 2 %}}x{{% endif %}}</mj-text>{END}", "is not valid MJML"),
        (f"{START}<mj-include path='other.mjml' />{END}", "is not valid MJML"),
        (
            "<mjml><mj-body><mj-section foo='{{ a }}' /></mj-body></mjml>",
            "must have {{ a }} where MJML shows it",
        ),
        (f"{START}<mj-text>{'x' * 65_000}</mj-text>{END}", "more than 65,536 bytes"),
    ],
)
def test_it_is_refused_with_a_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        check_template(None, body, ("a",), is_mjml=True)
    (fault,) = caught.value.faults
    assert fault.field == "body"
    assert reason in fault.reason


def test_conditions_may_stand_between_elements() -> None:
    body = "<mjml><mj-body>{% if a %}<mj-section></mj-section>{% endif %}</mj-body></mjml>"
    check_template(None, body, ("a",), is_mjml=True)


def test_the_liquid_in_it_is_checked_too() -> None:
    with pytest.raises(InvalidFields, match="which `variables` does not declare"):
        check_template(None, f"{START}<mj-text>{{{{ b }}}}</mj-text>{END}", ("a",), is_mjml=True)


def test_liquid_and_entities_stay_as_they_are() -> None:
    text = "{% if a > 1 %}{{ a | default: 'x' }} &amp; &lt;{% endif %}"
    assert text in convert(f"{START}<mj-text>{text}</mj-text>{END}")
