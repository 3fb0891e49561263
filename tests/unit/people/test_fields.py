"""The fields of a user are stored in one form, or refused with a reason."""

from typing import Any

import pytest

from clarion.people.fields import check_field
from clarion.people.model import UserStatus


@pytest.mark.parametrize(
    ("name", "given_value", "stored"),
    [
        ("name", "Ana 👩‍👩‍👧 Ünï", "Ana 👩‍👩‍👧 Ünï"),
        ("email", "Ana.B+c@Mail.Example.com", "Ana.B+c@Mail.Example.com"),
        ("email", "ä@müller.de", "ä@müller.de"),
        ("phone", "+49 151 12345678", "+4915112345678"),
        ("phone", "+1 (555) 555-0123", "+15555550123"),
        ("language", "pt-br", "pt-BR"),
        ("timezone", "Europe/Berlin", "Europe/Berlin"),
        ("status", UserStatus.INACTIVE, UserStatus.INACTIVE),
        ("tags", ["b", "a", "b"], ("b", "a")),
        ("tags", [str(n) for n in range(50)], tuple(str(n) for n in range(50))),
        ("attributes", {"a": [1, None]}, {"a": [1, None]}),
    ],
)
def test_a_valid_value_is_stored_in_one_form(name: str, given_value: Any, stored: Any) -> None:
    assert check_field(name, given_value) == stored


@pytest.mark.parametrize(
    ("name", "default"),
    [("name", None), ("language", "en"), ("timezone", "UTC"), ("tags", ()), ("attributes", {})],
)
def test_none_stands_for_the_default(name: str, default: object) -> None:
    assert check_field(name, None) == default


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("name", ["", " ", "a\0", "a\nb", "x" * 201]),
        (
            "email",
            ["", "ana", "a@", "@b.de", "a@b", "a b@c.de", "a..b@c.de", ".a@c.de", "a@c.de\n"],
        ),
        ("email", ["a@-c.de", "a@c-.de", f"{'x' * 65}@c.de", f"a@{'x.' * 130}de"]),
        ("phone", ["", "abc", "0151 12345678", "+1", "+49 151 12345678 x", "+" * 5]),
        ("phone", ["+999 12345678", f"+49{'1' * 30}"]),
        ("language", ["english"]),
        ("timezone", ["Mars/Olympus"]),
        ("tags", [[""], ["x" * 65], ["a\0"], [str(n) for n in range(51)]]),
        ("attributes", [{"a": "x" * 16_384}]),
    ],
)
def test_an_invalid_value_is_refused_with_a_reason(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"^must "):
            check_field(name, value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("name", "Ana{}Bcc: all@example.com"),
        ("email", "ana@example.com{}"),
        ("email", "ana{}@example.com"),
        ("email", "ana@exa{}mple.com"),
        ("email", "ana@example.com,{}all@example.com"),
        ("phone", "+49 151 12345678{}"),
    ],
)
def test_no_control_character_comes_into_a_header(name: str, text: str) -> None:
    for character in map(chr, (*range(32), *range(127, 160))):
        with pytest.raises(ValueError, match=r"^must "):
            check_field(name, text.format(character))


def test_a_user_has_at_most_a_hundred_attributes() -> None:
    many = {f"a{n}": n for n in range(100)}
    assert check_field("attributes", many) == many
    with pytest.raises(ValueError, match="at most 100 names"):
        check_field("attributes", many | {"more": 1})
