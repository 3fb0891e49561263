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


BEGIN = "<mjml>\n<mj-body>\n<mj-section>\n<mj-column>é\n"


def reason_of(text: str, subject: str | None = None) -> str:
    body = f"{BEGIN}{text}\n</mj-column></mj-section></mj-body></mjml>"
    with pytest.raises(InvalidFields) as caught:
        check_template(subject, body, ("a",), is_mjml=True)
    return caught.value.faults[-1].reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("é<mj-text>x", "<mj-text> is not closed (line 5, column 2)"),
        ("<mj-text>a</b></mj-text>", "</b> closes no element (line 5, column 11)"),
        ("<mj-text><p>x\n<b>y</p></mj-text>", "<b> is not closed (line 6, column 1)"),
        (
            "<mj-text>\n<a b=c>x</a></mj-text>",
            "<a b=c> cannot be parsed (line 6, column 1)",
        ),
        ("<mj-raw>a < b</mj-raw>", "< b cannot be parsed (line 5, column 11)"),
        ("<mj-image>é x</mj-image>", "unexpected token é x (line 5, column 11)"),
        ("é<mj-accordion><b/></mj-accordion>", "unexpected element <b (line 5, column 16)"),
    ],
)
def test_a_fault_names_its_place_in_the_text(text: str, reason: str) -> None:
    assert reason_of(text) == f"is not valid MJML: {reason}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("<mj-text>é {{ b }}</mj-text>", "(line 5, column 15)"),
        ("<mj-text>é {{ a | no }}</mj-text>", "(line 5, column 19)"),
        ("<mj-text>\n  {% if %}x{% endif %}</mj-text>", "(line 6, column 6)"),
        (
            "<mj-text>{{ a }}\n{{ a }}<b c='{{ a }}'/></mj-text><mj-text c='{{ a }}'/>",
            "(line 6, column 46)",
        ),
        ("<mj-text>{{ a }}</mj-text>\n<mj-text c='{{ a }}'/>", "(line 6, column 13)"),
    ],
)
def test_so_does_a_fault_of_the_liquid_in_it(text: str, place: str) -> None:
    assert reason_of(text).endswith(place)


BOLD_OR_NOT = "{% if a %}<b>{% else %}<i>{% endif %}x{% if a %}</b>{% else %}</i>{% endif %}"


@pytest.mark.parametrize("text", [f"<mj-text>{BOLD_OR_NOT}<p></mj-text>", "<mj-text>]]></mj-text>"])
def test_no_place_is_named_if_it_is_not_certain(text: str) -> None:
    assert "line" not in reason_of(text)


def test_conditions_may_change_an_element() -> None:
    check_template(None, f"{START}<mj-text>{BOLD_OR_NOT}</mj-text>{END}", ("a",), is_mjml=True)


def test_the_faults_of_the_subject_are_named_too() -> None:
    with pytest.raises(InvalidFields) as caught:
        check_template("é {{ b }}", "<mjml>\n<mj-body>", (), is_mjml=True)
    subject, body = caught.value.faults
    assert (subject.field, body.field) == ("subject", "body")
    assert subject.reason.endswith("(line 1, column 6)")
    assert body.reason.endswith("<mj-body> is not closed (line 2, column 1)")
