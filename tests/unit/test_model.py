"""API keys and scopes."""

import pytest

from clarion.access.model import ALL_SCOPES, ApiKey, Scope
from tests.factories import NOW, make_key


@pytest.mark.parametrize(
    ("key", "is_live"),
    [
        (make_key("a"), True),
        (make_key("a", expires_at=NOW + 1), True),
        (make_key("a", expires_at=NOW), False),
        (make_key("a", revoked_at=NOW), False),
        (make_key("a", revoked_at=NOW + 1), False),
        (make_key("a", revoked_at=NOW - 1, expires_at=NOW + 1), False),
    ],
)
def test_a_key_lives_until_it_is_revoked_or_ends(key: ApiKey, *, is_live: bool) -> None:
    assert key.is_live(NOW) is is_live


def test_all_scopes_are_all_of_them() -> None:
    assert set(Scope) == ALL_SCOPES


def test_what_can_be_written_can_be_read_or_is_written_alone() -> None:
    assert {scope.value.partition(":")[2] for scope in Scope} == {"read", "write"}
