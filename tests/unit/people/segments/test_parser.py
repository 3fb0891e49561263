"""Filters: their text, their faults, their meaning and their normal form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.people.model import UserStatus
from clarion.people.segments.evaluation import is_member
from clarion.people.segments.filters import (
    EVERYONE,
    NO_ONE,
    All,
    AnyOf,
    Between,
    Bound,
    Filter,
    Not,
    OneOf,
    list_conditions,
)
from clarion.people.segments.normal_form import normalise
from clarion.people.segments.parser import parse
from clarion.people.segments.tokens import FilterError
from tests.factories import DAY, NOW, make_user
from tests.filters import filters, users, write
from tests.stopwatch import count_units

A, B, C = (OneOf("tag", (name,)) for name in "abc")
ANA = make_user(
    "ana",
    language="de",
    tags=("vip", "beta"),
    attributes={"plan": "pro", "age": 42, "is_new": False, "first name": "O'Neil", "list": [1]},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tag = 'a'", A),
        ("tag='a'", A),
        ("tag != 'a'", Not(A)),
        ("tag in ('b', 'a', 'b')", OneOf("tag", ("a", "b"))),
        ("tag not in ('a')", Not(A)),
        ("not not not tag = 'a'", Not(A)),
        ("tag='a' or tag='b' and tag='c'", AnyOf((A, All((B, C))))),
        ("(tag='a' OR tag='b') AND NOT tag='c'", All((AnyOf((A, B)), Not(C)))),
        ("\n(\t( tag = 'a' ) ) ", A),
        ("language = 'PT-br'", OneOf("language", ("pt-BR",))),
        ("attributes.plan = 'it''s'", OneOf("text.plan", ("it's",))),
        ("attributes.'first name' = ''", OneOf("text.first name", ("",))),
        ("attributes.2fa-on = TRUE", OneOf("flag.2fa-on", (1.0,))),
        ("attributes.n >= -1.5e3", Between("number.n", low=Bound(-1500.0, is_included=True))),
        ("attributes.n = -0", OneOf("number.n", (0.0,))),
        ("attributes.n < 'b'", Between("text.n", high=Bound("b", is_included=False))),
        (
            "created_at < '2026-01-02'",
            Between("created_at", high=Bound(NOW + DAY, is_included=False)),
        ),
        ("last_seen_at = '2026-01-01T01:00:00+01:00'", OneOf("last_seen_at", (float(NOW),))),
        (
            "attributes.n in (1, 'a', true)",
            AnyOf((OneOf("number.n", (1.0,)), OneOf("text.n", ("a",)), OneOf("flag.n", (1.0,)))),
        ),
    ],
)
def test_a_filter_is_read(text: str, expected: Filter) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "character 1: expected a field, like language or attributes.plan, found the end"),
        ("tag", "character 4: expected one of = != < <= > >= in, found the end"),
        ("tag not = 'a'", "character 9: expected in, found ="),
        ("tag = ", "character 7: expected a value: a text in single quotes, a number, true or"),
        ("tag = vip", "character 7: expected a value: a text in single quotes, a number, true or"),
        ("tag = 'vip", "character 7: this text has no closing quote"),
        ('tag = "vip"', 'character 7: did not expect "'),
        ("tag = 5", "character 1: tag is compared with a text in single quotes"),
        ("tag < 'a'", "character 1: tag cannot be compared with < here: use =, != or in"),
        ("tag = ''", "character 1: tag has 1 to 64 characters"),
        ("tag in 'a'", "character 8: expected ( and a list of values, found 'a'"),
        ("tag in ()", "character 9: expected a value"),
        ("tag in ('a' 'b')", "character 13: expected , or ), found 'b'"),
        ("(tag = 'a'", "character 11: expected and, or, or ), found the end"),
        ("tag = 'a')", "character 10: expected and, or, or the end, found )"),
        ("tag = 'a' and", "character 14: expected a field"),
        ("name = 'a'", "character 1: there is no field name: use language, timezone, status, tag"),
        ("attributes = 'a'", "character 1: there is no field attributes: use"),
        ("attributes.'' = 'a'", "character 1: the name of an attribute has 1 to 100 characters"),
        ("attributes.a.b = 1", "character 13: expected a number"),
        ("attributes.a < true", "character 1: attributes.a cannot be compared with < here"),
        ("attributes.a = 1e300", "character 16: a number must be less than 1e+300"),
        ("attributes.a = 1" + "0" * 2000, "character 16: a number must be less than 1e+300"),
        ("attributes.a = 12x", "character 16: expected a number, like 12 or -0.5"),
        ("attributes.a = ٣", "character 16: did not expect ٣"),
        ("language = 'german'", "character 1: language must be a language tag, like en or pt-BR"),
        ("timezone = 'Berlin'", "character 1: timezone must be an IANA time zone name"),
        ("status = 'asleep'", "character 1: status must be one of active, inactive"),
        ("created_at > 'today'", "character 1: created_at must be a date or time, like 2026-01-31"),
        ("created_at > '2026-02-30'", "character 1: created_at must be a date or time"),
        ("created_at > '2026-01-31T12:00:00'", "character 1: created_at must have an offset"),
        ("tag = 'a\x00'", "character 7: must not contain control characters"),
        ("tag = 'a\ud800'", "character 7: must not contain control characters"),
        ("tag = 'a';drop table users", "character 10: did not expect ;"),
        ("tag = 'a' --", "character 11: expected a number"),
        ("\x00", "character 1: did not expect a control character"),
        ("x" * 5000, "must have at most 4,096 characters"),
        (f"attributes.a = '{'x' * 257}'", "character 16: a text has at most 256 characters"),
        ("tag in (" + ",".join(["'a'"] * 101) + ")", "a list has at most 100 values"),
        ("(" * 17 + "tag = 'a'" + ")" * 17, "character 18: parentheses may be nested 16 levels"),
        (" or ".join(["tag = 'a'"] * 33), "a filter has at most 32 conditions"),
    ],
)
def test_a_fault_names_its_place_and_what_was_expected(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as found:
        parse(text)
    assert reason in str(found.value)


def test_what_is_within_the_limits_is_read() -> None:
    parse("(" * 16 + "tag = 'a'" + ")" * 16)
    parse(" or ".join(["tag = 'a'"] * 32))
    parse("tag in (" + ",".join(["'a'"] * 100) + ")")
    parse(f"attributes.a = '{'x' * 256}'")


PIECES = ["(", ")", ",", "'", "''", "not ", "and ", "or ", "in ", "tag", "= ", "<", "!", "'a'", "1"]


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse(text)
    except FilterError as error:
        assert str(error)  # noqa: PT017 - it may also be read
    else:
        assert is_member(parsed, ANA) is is_member(normalise(parsed), ANA)


@pytest.mark.timing
@pytest.mark.parametrize(
    "piece", ["'", "''", "(", "not ", "1", "tag='a' or ", "a.", "-", "tag in("]
)
def test_the_longest_texts_take_no_longer_than_others(piece: str) -> None:
    """A parser whose time grows with the square would take seconds for these."""
    text = (piece * 4096)[:4096]

    def refuse() -> None:
        with pytest.raises(FilterError):
            parse(text)

    assert count_units(refuse) < 50


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("language = 'de'", True),
        ("language = 'de-AT'", False),
        ("tag = 'vip' and tag = 'beta'", True),
        ("tag != 'vip'", False),
        ("tag in ('x', 'beta')", True),
        ("attributes.age > 41.5 and attributes.age <= 42", True),
        ("attributes.age = '42'", False),
        ("attributes.plan >= 'p'", True),
        ("attributes.plan < 'P'", False),
        ("attributes.is_new = false", True),
        ("attributes.is_new = 0", False),
        ("attributes.'first name' = 'O''Neil'", True),
        ("attributes.missing = 'x' or attributes.missing < 5", False),
        ("attributes.missing != 'x'", True),
        ("not attributes.missing < 5", True),
        ("attributes.list = 1", False),
        ("created_at = '2026-01-01'", True),
        ("last_seen_at > '2026-01-01'", False),
        ("status = 'active'", True),
        ("status = 'inactive'", False),
    ],
)
def test_a_filter_selects_users(text: str, *, expected: bool) -> None:
    assert is_member(parse(text), ANA) is expected
    assert is_member(normalise(parse(text)), ANA) is expected


def test_inactive_users_are_in_no_segment() -> None:
    asleep = make_user("bo", status=UserStatus.INACTIVE, tags=("a",))
    for text in ("tag = 'a'", "tag != 'b'", "status = 'inactive'", "not status = 'active'"):
        assert not is_member(parse(text), asleep)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not (tag = 'a' and not tag = 'b')", AnyOf((Not(A), B))),
        ("tag = 'a' or (tag = 'b' or tag = 'a')", OneOf("tag", ("a", "b"))),
        ("tag = 'a' and (tag = 'b' and tag = 'a')", All((A, B))),
        ("tag != 'a' and tag != 'b'", Not(OneOf("tag", ("a", "b")))),
        ("language = 'de' and language = 'en'", NO_ONE),
        ("language != 'de' or status = 'active'", EVERYONE),
        ("status = 'active' and tag = 'a'", A),
        ("status = 'inactive' or tag = 'a'", A),
        ("status = 'inactive' and tag = 'a'", NO_ONE),
        ("not status != 'active'", EVERYONE),
        ("attributes.n > 5 and attributes.n <= 5", NO_ONE),
        ("attributes.n in (1, 7) and attributes.n > 5", OneOf("number.n", (7.0,))),
        (
            "attributes.n > 1 and attributes.n < 9 and attributes.n >= 1 and attributes.n < 7",
            Between("number.n", Bound(1.0, is_included=False), Bound(7.0, is_included=False)),
        ),
        # A user may have no number: then neither is true.
        (
            "not attributes.n > 1",
            Not(Between("number.n", low=Bound(1.0, is_included=False))),
        ),
    ],
)
def test_the_normal_form(text: str, expected: Filter) -> None:
    assert normalise(parse(text)) == expected


@given(filters, st.lists(users("ana"), min_size=1, max_size=5))
def test_a_filter_means_the_same_as_its_text_and_its_normal_form(
    of: Filter, some: list[Any]
) -> None:
    parsed, normal = parse(write(of)), normalise(of)
    for user in some:
        expected = is_member(of, user)
        assert is_member(parsed, user) is expected
        assert is_member(normal, user) is expected
    assert normalise(normal) == normal
    assert len(list(list_conditions(normal))) <= len(list(list_conditions(of)))
