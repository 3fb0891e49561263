"""Rendering: undefined values are errors, and everything has a limit."""

from typing import Any

import pytest

from clarion.catalog.model import RenderedText, build_context
from clarion.catalog.rendering import limits, templates
from clarion.catalog.rendering.templates import check_template
from clarion.errors import FieldFault, InvalidFields
from tests.stopwatch import count_units

BIG = "x" * 60_000


def template(body: str, subject: str | None = None) -> RenderedText:
    return RenderedText(subject, body)


def render(made: RenderedText, context: dict[str, Any], *, is_html: bool = False) -> RenderedText:
    return templates.render(made, context, is_html=is_html)


def fault_of(body: str, **values: Any) -> FieldFault:
    with pytest.raises(InvalidFields) as caught:
        render(template(body), values)
    (fault,) = caught.value.faults
    return fault


def test_values_come_into_subject_and_body() -> None:
    values = build_context({"order": 7}, actor={"name": "Ana"})
    text = render(template("Order {{ order }}", "From {{ actor.name }}"), values)
    assert text == RenderedText("From Ana", "Order 7")


def test_without_a_subject_there_is_none() -> None:
    assert render(template("x"), {}) == RenderedText(None, "x")


def test_in_html_values_are_escaped_in_the_body_alone() -> None:
    made = template("<b>{{ a }}</b>", "{{ a }}")
    expected = RenderedText("<&>", "<b>&lt;&amp;&gt;</b>", is_html=True)
    assert render(made, {"a": "<&>"}, is_html=True) == expected


@pytest.mark.parametrize("body", ["{{ a | upcase }}", "{{ a | append: a }}", "{% echo a %}"])
def test_in_html_no_filter_lets_a_value_in_as_it_is(body: str) -> None:
    assert "<" not in render(template(body), {"a": "<script>"}, is_html=True).body


def test_a_subject_is_one_line() -> None:
    text = render(template("x", "{{ a }}"), {"a": "Hello\r\nBcc: all@example.com\t!"})
    assert text.subject == "Hello Bcc: all@example.com !"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("{{ order }}", "data.order"),
        ("{{ order | upcase }}", "data.order"),
        ("{{ order.id }}", "data.order"),
        ("{{ actor.name }}", "actor.name"),
        ("{% for each in list %}{{ each }}{% endfor %}", "data.list"),
    ],
)
def test_what_is_missing_is_named(body: str, field: str) -> None:
    fault = fault_of(body, actor={})
    assert (fault.field, fault.reason) == (field, "is missing, but the body uses it")


ENDLESS = pytest.mark.parametrize(
    "body",
    [
        "{% for i in (1..1001) %}a{% endfor %}",
        "{% for i in (1..40) %}{% for j in (1..40) %}a{% endfor %}{% endfor %}",
        "{{ (1..1000000000) | join: '' }}",
        "{{ big | split: '' | join: big }}",
        "{{ big | replace: 'x', big }}",
        "{{ big }}{{ big }}",
        "{% assign s = 'aaaa' %}{% for i in (1..99) %}{% assign s = s | append: s %}{% endfor %}",
        "{% assign n = 9 %}{% for i in (1..99) %}{% assign n = n | times: n %}{% endfor %}",
        "{{ 'now' | date: '%999999999d' }}",
        "{% for i in (1..999) %}{% assign x = i %}{% endfor %}" * 1_000,
    ],
)


@ENDLESS
def test_a_template_that_exceeds_a_limit_is_stopped(body: str) -> None:
    fault = fault_of(body, big=BIG)
    assert fault.field == "body"
    assert fault.reason.startswith("exceeds a limit: at most 1,000 loop iterations, 65,536 bytes")


@pytest.mark.timing
@ENDLESS
def test_it_is_stopped_soon(body: str) -> None:
    assert count_units(lambda: fault_of(body, big=BIG)) < 2_000


@pytest.mark.parametrize("body", ["{{ 1 | divided_by: 0 }}", "{{ mixed | sort }}"])
def test_the_error_of_a_filter_is_reported(body: str) -> None:
    fault = fault_of(body, mixed=[1, "a"])
    assert fault.field == "body"
    assert fault.reason.startswith("cannot be rendered: ")


def test_a_date_can_be_written() -> None:
    made = template("{{ at | date: '%d.%m.%Y' }}")
    assert render(made, {"at": "2026-01-31T12:00:00Z"}).body == "31.01.2026"


def test_an_undefined_value_is_false_in_a_condition() -> None:
    made = template("{% if actor %}a{% endif %}{% if snippet %}s{% endif %}{{ count }}")
    for data in ({}, {"snippet": ""}, {"actor": {"name": "x"}, "count": 9}):
        assert render(made, build_context(data)).body == "1"


@pytest.mark.parametrize(
    ("body", "variables", "reason"),
    [
        ("{{ a", [], "is not a valid template"),
        ("{% include 'x' %}", [], "is not a valid template"),
        ("{% if a %}", ["a"], "is not a valid template"),
        ("{{ a | safe }}", ["a"], "uses unknown filters: safe"),
        ("{{ a }}{{ b.c }}", ["a"], "uses b, which `variables` does not declare"),
        (
            "a\nbc {% if %}",
            [],
            "is not a valid template: missing expression (line 2, column 7)",
        ),
        ("a\n{% if a %}", ["a"], "is not a valid template: expected tag endif"),
        ("\n {{ a | safe }}", ["a"], "uses unknown filters: safe (line 2, column 9)"),
        ("{{ a }}\n{{ b.c }}", ["a"], "uses b, which `variables` does not declare (line 2,"),
        ("x" * 65_537, [], "must have at most 65,536 bytes"),
        (" ", [], "must not be blank"),
        ("a\0", [], "must not be blank, or contain zero characters"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(
    body: str, variables: list[str], reason: str
) -> None:
    for field, subject, other in (("body", None, body), ("subject", body, "x")):
        with pytest.raises(InvalidFields) as caught:
            check_template(subject, other, variables)
        (fault,) = caught.value.faults
        assert (fault.field, fault.reason[: len(reason)]) == (field, reason)


def test_what_is_given_or_made_in_the_template_needs_no_declaration() -> None:
    body = "{% assign x = 1 %}{% for i in a %}{{ i }}{{ x }}{{ forloop.index }}{% endfor %}"
    subject = "{{ actor.name }} {{ count }}{% if snippet %}!{% endif %}"
    check_template(subject, body, ["a"])
    # The same without the declaration is a fault: it is the check that let the others pass.
    with pytest.raises(InvalidFields) as caught:
        check_template(subject, body, [])
    assert [fault.field for fault in caught.value.faults] == ["body"]


MANY = [{"x": n} for n in range(4_000)]
TAGS = "<script" * 8_000
GROWING = pytest.mark.parametrize(
    "body",
    [
        "{{ many | uniq | size }}",
        "{{ many | map: 'x' | uniq | size }}",
        "{{ tags | strip_html }}",
        "{{ tags | date: '%Y' }}",
        "{{ 1.5 | round: 1000000000 }}",
    ],
)


@GROWING
def test_a_filter_with_more_than_linear_time_takes_little_input(body: str) -> None:
    fault = fault_of(body, many=MANY, tags=TAGS)
    assert fault.reason.startswith("exceeds a limit")


@pytest.mark.timing
@GROWING
def test_it_takes_little_time(body: str) -> None:
    assert count_units(lambda: fault_of(body, many=MANY, tags=TAGS)) < 200


def test_a_filter_with_a_limit_does_its_work_below_it() -> None:
    body = "{{ few | uniq | join: ',' }}{{ tags | strip_html }}{{ 1.256 | round: 2 }}"
    assert render(template(body), {"few": [1, 2, 1], "tags": "<b>x</b>"}).body == "1,2x1.26"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{{ count }}" * 1_001, "must have at most 1,000 values and tags"),
        (
            "\nx {{ count",
            "is not a valid template: a {{ or {% is not closed (line 2, column 3)",
        ),
        (
            "{{ count }} {% if",
            "is not a valid template: a {{ or {% is not closed (line 1, column 13)",
        ),
        (
            "{% raw %}" * 9,
            "is not a valid template: raw tag was never closed (line 1, column 73)",
        ),
    ],
)
def test_what_the_parser_would_search_for_long_is_refused_before(body: str, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        limits.check_size(None, body)
    assert [fault.reason for fault in caught.value.faults] == [reason]


def test_what_is_raw_may_hold_anything() -> None:
    body = "{% raw %}{{ x }}{% endraw %}{{ count }}"
    limits.check_size(None, body)
    assert render(template(body), {"count": 2}).body == "{{ x }}2"
