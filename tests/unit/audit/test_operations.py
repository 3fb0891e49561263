"""The table of what is recorded, compared with the routes that a server has."""

from pathlib import Path

import pytest

from clarion.audit.operations import AUDITED, NOT_AUDITED
from tests.in_process import opened_front

pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
# They identify things of an app, not people, and are not secret. `user_id` becomes a pseudonym.
NAMED = {
    "administrator_id",
    "app_id",
    "channel",
    "key_id",
    "kid",
    "name",
    "session_id",
    "type_name",
    "user_id",
}


async def test_whatever_can_change_something_is_recorded_or_has_a_reason(tmp_path: Path) -> None:
    async with opened_front(tmp_path) as (front, _):
        operations = await front.list_operations()
    changing = {each for each in operations if not each.startswith(("GET ", "HEAD ", "* "))}
    assert changing - AUDITED.keys() - NOT_AUDITED.keys() == set(), "add a line to the table"
    assert (AUDITED.keys() | NOT_AUDITED.keys()) - operations == set(), "there is no such operation"
    assert AUDITED.keys() & NOT_AUDITED.keys() == set()


async def test_what_is_recorded_passes_through_the_framework(tmp_path: Path) -> None:
    """Requests that the front answers itself are not recorded."""
    async with opened_front(tmp_path) as (front, _):
        assert AUDITED.keys() & {f"{method} {path}" for method, path in front.fast_routes} == set()


def test_targets_name_no_people() -> None:
    names = {
        part.strip("{}") for each in AUDITED for part in each.split("/") if part.startswith("{")
    }
    assert names <= NAMED
