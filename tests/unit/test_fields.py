"""What is said of a person, in one form or not at all."""

from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion import fields


@pytest.mark.parametrize(
    ("check", "given_value", "stored"),
    [
        (fields.check_user_id, "a|b:c@d=e+f~g_h-i.1", "a|b:c@d=e+f~g_h-i.1"),
        (fields.check_user_id, "x" * 128, "x" * 128),
        (fields.check_topic, "team:7", "team:7"),
        (fields.check_name, "Ana 👩‍👩‍👧 Ünï", "Ana 👩‍👩‍👧 Ünï"),
        (fields.check_email, "Ana.B+c@Mail.Example.com", "Ana.B+c@Mail.Example.com"),
        (fields.check_email, "ä@müller.de", "ä@müller.de"),
        (fields.check_phone, "+49 151 12345678", "+4915112345678"),
        (fields.check_phone, "+1 (555) 555-0123", "+15555550123"),
        (fields.check_language, "EN", "en"),
        (fields.check_language, "pt-br", "pt-BR"),
        (fields.check_language, "zh-hans-cn", "zh-Hans-CN"),
        (fields.check_language, "es-419", "es-419"),
        (fields.check_language, "de-DE-1996", "de-DE-1996"),
        (fields.check_timezone, "America/Argentina/Ushuaia", "America/Argentina/Ushuaia"),
        (fields.check_tags, ["b", "a", "b"], ("b", "a")),
        (fields.check_tags, [str(n) for n in range(50)], tuple(str(n) for n in range(50))),
    ],
)
def test_what_is_right_is_stored_in_one_form(
    check: Callable[[Any], object], given_value: object, stored: object
) -> None:
    assert check(given_value) == stored


@pytest.mark.parametrize(
    ("check", "values"),
    [
        (fields.check_user_id, ["", "x" * 129, "a b", "a/b", "ü", "a\n", "\0"]),
        (fields.check_topic, ["", "x" * 201, "a b", "a/b", "a\n"]),
        (fields.check_name, ["", " ", "a\0", "a\nb", "x" * 201]),
        (
            fields.check_email,
            ["", "ana", "a@", "@b.de", "a@b", "a b@c.de", "a..b@c.de", ".a@c.de", "a@c.de\n"],
        ),
        (fields.check_email, ["a@-c.de", "a@c-.de", f"{'x' * 65}@c.de", f"a@{'x.' * 130}de"]),
        (fields.check_phone, ["", "abc", "0151 12345678", "+1", "+49 151 12345678 x", "+" * 5]),
        (fields.check_phone, ["+999 12345678", f"+49{'1' * 30}"]),
        (fields.check_language, ["", "e", "english", "pt_BR", "en-", "en-us-", "é"]),
        (fields.check_timezone, ["", "Mars/Olympus", "europe/berlin", "../etc/passwd", "+02:00"]),
        (fields.check_tags, [[""], ["x" * 65], ["a\0"], [str(n) for n in range(51)]]),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(
    check: Callable[[Any], object], values: list[object]
) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"^must "):
            check(value)


@given(st.text(max_size=40))
def test_a_time_zone_that_passes_can_be_used(text: str) -> None:
    try:
        ZoneInfo(fields.check_timezone(text))
    except ValueError as error:
        assert str(error).startswith("must be a name")  # noqa: PT017


@given(st.from_regex(fields._LANGUAGE, fullmatch=True))
def test_a_language_tag_has_one_form(text: str) -> None:
    once = fields.check_language(text)
    assert fields.check_language(once) == once == fields.check_language(text.upper())
