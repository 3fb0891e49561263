"""Issuing API keys."""

import pytest

from clarion.access.issuing import issue_key, parse_scopes
from clarion.access.model import ALL_SCOPES, Scope
from clarion.errors import FieldFault, InvalidFields
from tests.factories import NOW, issue


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


def test_the_repr_does_not_show_the_secret() -> None:
    issued = issue()
    assert issued.secret.secret not in repr(issued)
