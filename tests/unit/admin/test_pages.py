"""Paths, permissions and words of the dashboard."""

from typing import Any

import pytest

from clarion.access.model import AdminCaller, Role, Scope, SignInStage
from clarion.admin.navigation import OF_APP, OF_SERVER
from clarion.admin.operations import path_of
from clarion.admin.page import Found, Pages
from clarion.admin.pages.table import PAGES
from clarion.admin.paths import check_next
from clarion.admin.permissions import Open, may_open, parse_needs
from clarion.admin.reasons import REASONS, RULES
from clarion.admin.rendering import show_query, show_time, show_words
from clarion.admin.timelines import describe_timeline, show_duration
from clarion.errors import NotFound
from clarion.events.explainer import RULES as ORDER
from clarion.history.model import ReasonCode


def test_every_reason_and_rule_has_words() -> None:
    assert set(REASONS) == {each.value for each in ReasonCode}
    assert set(RULES) == set(ORDER)


def test_every_link_leads_to_a_page_with_the_same_permission() -> None:
    pages = Pages(PAGES)
    for link in OF_APP:
        found = pages.find("GET", f"/admin/apps/a/{link.path}")
        assert isinstance(found, Found), link
        assert found.page.needs == link.needs
    for link in OF_SERVER:
        found = pages.find("GET", f"/admin/{link.path}")
        assert isinstance(found, Found), link
        assert found.page.needs == link.needs


def test_a_page_is_found_by_its_path_and_method() -> None:
    pages = Pages(PAGES)
    found = pages.find("GET", "/admin/apps/a/people/ana/inbox/")
    assert isinstance(found, Found)
    assert found.parts == {"app_id": "a", "user_id": "ana"}
    assert pages.find("DELETE", "/admin/apps/a/people/ana") == {"GET", "POST"}
    assert pages.find("GET", "/admin/apps/a/nothing") == set()


@pytest.mark.parametrize("part", ["", "a/b", "a\0b"])
def test_a_part_of_the_path_of_an_operation_is_one_part(part: str) -> None:
    with pytest.raises(NotFound):
        path_of("users", part)
    assert path_of("users", "ana") == "/v1/users/ana"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/admin/apps/a/people?q=x%26y", "/admin/apps/a/people?q=x%26y"),
        ("/admin", "/admin"),
        ("/administrators", "/admin"),
        ("//admin", "/admin"),
        ("/admin/\r\nset-cookie: a", "/admin"),
        ("", "/admin"),
    ],
)
def test_what_comes_next_is_a_page_of_the_dashboard(path: str, expected: str) -> None:
    assert check_next(path) == expected


def test_a_button_is_for_those_who_may_use_it() -> None:
    viewer = AdminCaller(administrator_id="1", username="v", role=Role.VIEWER)
    editor = AdminCaller(administrator_id="2", username="e", app_roles={"a": Role.EDITOR})
    assert may_open(parse_needs("users:read"), viewer, "a")
    assert not may_open(parse_needs("users:write"), viewer, "a")
    assert may_open(parse_needs("users:write"), editor, "a")
    assert not may_open(parse_needs("users:read"), editor, "b")
    assert not may_open(parse_needs("viewer"), editor, "a")
    assert not may_open(Scope.USERS_READ, viewer, None)
    pending = AdminCaller(administrator_id="3", username="p", stage=SignInStage.NEEDS_TOTP)
    assert not may_open(None, pending, None)
    assert not may_open(Open.STRANGERS, viewer, None)
    with pytest.raises(ValueError, match="users:delete"):
        parse_needs("users:delete")


def test_values_are_shown() -> None:
    assert "2026-01-01 00:00:00 UTC" in show_time("2026-01-01T00:00:00.000Z")
    assert "1970-01-01 00:00:01.500 UTC" in show_time(1500, is_exact=True)
    assert "0001-01-01" in show_time(-(2**63))
    assert "9999-12-31" in show_time(2**63 - 1)
    assert show_query({"q": "a b&c", "after": None, "type": ""}) == "?q=a+b%26c"
    assert show_words("partially_delivered") == "partially delivered"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.004, "4 ms"), (1.5, "1.5 s"), (720, "12 min"), (28_800, "8.0 h"), (259_200, "3.0 d")],
)
def test_a_duration_is_shown_in_the_unit_that_fits(seconds: float, words: str) -> None:
    assert show_duration(seconds) == words


def test_entries_of_a_timeline_say_how_much_later_they_are() -> None:
    given: list[dict[str, Any]] = [
        {"at": "2026-01-01T00:00:00.000Z", "what": "accepted", "reason": None},
        {"at": "2026-01-01T00:00:00.004Z", "what": "hold", "reason": "quiet_hours"},
        {"at": "2026-01-01T08:00:00.004Z", "what": "attempt 1: rejected", "reason": None},
    ]
    shown = describe_timeline(given)
    assert [each["later"] for each in shown] == ["", "+4 ms", "+8.0 h"]
    assert [each["tone"] for each in shown] == ["info", "warn", "bad"]
    assert shown[1]["reason_words"] == "Quiet hours of the user"
    assert shown[2]["words"] == "Attempt 1: rejected"
