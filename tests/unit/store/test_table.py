"""A declaration of a table has an answer to each question."""

from collections.abc import Mapping
from typing import Any

import pytest

from clarion.store.table import APP_ID, HASH, PLAIN, USER_ID, Owner, Sealed, Stays, Table

ANSWERS: Mapping[str, Any] = {
    "key": ("app_id", "id"),
    "owner": Owner.USER,
    "columns": {"app_id": APP_ID, "user_id": USER_ID, "id": PLAIN, "secret": HASH},
    "ends": Stays("it is a test"),
    "shard": ("app_id", "user_id"),
}


def test_a_table_answers_what_is_asked() -> None:
    table = Table("things", tuple, **ANSWERS)
    assert (set(table.shown), table.sealed, table.cursor) == ({"id"}, {}, ("id",))
    assert table.row_key == table.by_app == ("app_id", "id")


def test_sealed_columns_are_known() -> None:
    sealed = Sealed(str)
    columns = {**ANSWERS["columns"], "secret": sealed}
    assert Table("things", tuple, **{**ANSWERS, "columns": columns}).sealed == {"secret": sealed}


@pytest.mark.parametrize("missing", ["key", "owner", "ends"])
def test_a_table_without_an_answer_does_not_import(missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        Table("things", tuple, **{name: each for name, each in ANSWERS.items() if name != missing})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"impersonal": "of apps"}, "about users"),
        ({"owner": Owner.APP}, "about users"),
        ({"shard": ()}, "divided"),
        ({"columns": {}}, "columns"),
    ],
)
def test_answers_must_fit_together(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        Table("things", tuple, **{**ANSWERS, **changes})
