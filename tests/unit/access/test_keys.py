"""API keys: what their holders see, and how they are issued."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.access.keys import (
    ApiSecret,
    issue_key,
    new_api_secret,
    parse_api_secret,
    parse_scopes,
    random_text,
)
from clarion.access.model import ALL_SCOPES, Scope
from clarion.errors import FieldFault, InvalidFields
from tests.factories import NOW, issue

SECRET = ApiSecret("0123456789abcdef", "s" * 43)


def test_a_new_key_has_the_shape_that_scanners_look_for() -> None:
    assert re.fullmatch(r"ck_[0-9A-Za-z]{16}_[0-9A-Za-z]{43}", new_api_secret().text)


def test_no_two_keys_are_the_same() -> None:
    made = [new_api_secret() for _ in range(200)]
    assert len({key.id for key in made}) == len({key.secret for key in made}) == 200


def test_a_key_is_read_as_it_was_written() -> None:
    assert parse_api_secret(SECRET.text) == SECRET


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ck_",
        SECRET.text[:-1],
        SECRET.text + "x",
        SECRET.text + "\n",
        " " + SECRET.text,
        SECRET.text.upper(),
        SECRET.text.replace("ck_", "pk_"),
        SECRET.text.replace("0", "ö"),
    ],
)
def test_what_has_another_shape_is_no_key(text: str) -> None:
    assert parse_api_secret(text) is None


@given(st.text())
def test_any_text_is_a_key_or_none(text: str) -> None:
    parsed = parse_api_secret(text)
    assert parsed is None or parsed.text == text


def test_only_the_secret_that_was_hashed_matches() -> None:
    assert SECRET.matches(SECRET.hash)
    assert not ApiSecret(SECRET.id, "t" * 43).matches(SECRET.hash)
    assert not SECRET.matches(b"")


def test_the_hash_has_256_bits_and_not_the_secret() -> None:
    assert len(SECRET.hash) == 32
    assert SECRET.secret.encode() not in SECRET.hash


def test_the_repr_does_not_show_the_secret() -> None:
    assert repr(SECRET) == "ApiSecret('0123456789abcdef', '***')"
    assert SECRET.secret not in f"{SECRET} {SECRET!r} {[SECRET]}"


def test_random_text_has_the_length_asked_for() -> None:
    assert [len(random_text(length)) for length in (0, 1, 43)] == [0, 1, 43]


def fault_of(**changes: object) -> FieldFault:
    values: dict[str, object] = {"app_id": "a", "label": "l", "scopes": ["*"], "now": NOW}
    with pytest.raises(InvalidFields) as raised:
        issue_key(**values | changes)  # type: ignore[arg-type]
    (fault,) = raised.value.faults
    return fault


def test_a_key_holds_what_was_asked_for_and_the_hash_of_its_secret() -> None:
    issued = issue_key(app_id="a", label="l", scopes=["events:write"], now=NOW, expires_at=NOW + 1)
    key = issued.key
    assert (key.app_id, key.label, key.created_at, key.expires_at) == ("a", "l", NOW, NOW + 1)
    assert (key.id, key.secret_hash) == (issued.secret.id, issued.secret.hash)
    assert key.scopes == {Scope.EVENTS_WRITE}
    assert key.revoked_at is None


def test_a_star_alone_means_all_scopes() -> None:
    assert parse_scopes(["*"]) == ALL_SCOPES
    assert parse_scopes(["*", "*"]) == ALL_SCOPES


@pytest.mark.parametrize("scopes", [[], ["events:wrte"], ["*", "events:write"], ["", "*"]])
def test_other_scopes_are_refused_with_a_list_of_all(scopes: list[str]) -> None:
    fault = fault_of(scopes=scopes)
    assert fault.field == "scopes"
    assert all(scope.value in fault.reason for scope in Scope)


@pytest.mark.parametrize("label", ["x", "x" * 100, "Ünïcode 🚀"])
def test_a_label_has_1_to_100_characters(label: str) -> None:
    assert issue_key(app_id="a", label=label, scopes=["*"], now=NOW).key.label == label


@pytest.mark.parametrize("label", ["", "x" * 101, "a\0b", "a\nb", "\x7f", "\ud800"])
def test_another_label_is_refused(label: str) -> None:
    assert fault_of(label=label).field == "label"


@pytest.mark.parametrize("expires_at", [NOW, NOW - 1, 0, -1])
def test_a_key_cannot_end_before_it_begins(expires_at: int) -> None:
    assert fault_of(expires_at=expires_at) == FieldFault("expires_at", "must be in the future")


def test_the_repr_of_an_issued_key_does_not_show_its_secret() -> None:
    issued = issue()
    assert issued.secret.secret not in repr(issued)
