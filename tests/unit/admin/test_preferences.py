"""Preferences as a form."""

from typing import Any

import pytest

from clarion.admin.preferences import describe_hours, find_changes

NIGHT = [hour >= 22 or hour < 7 for hour in range(24)]
WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (NIGHT, "22:00 to 07:00"),
        ([True] * 24, "all day"),
        ([False] * 24, "no quiet hours"),
        ([], "no quiet hours"),
        ([hour in {1, 5} for hour in range(24)], "several hours of the day"),
        ([{"from": "22:30", "to": "07:00", "days": WEEK}], "22:30 to 07:00"),
        ([{"from": "09:00", "to": "10:00", "days": ["sat"]}], "09:00 to 10:00 on sat"),
    ],
)
def test_quiet_hours_are_described(hours: list[Any], words: str) -> None:
    assert describe_hours(hours)["words"] == words


def test_a_window_is_drawn_by_the_hours_that_begin_in_it() -> None:
    over_night = describe_hours([{"from": "22:30", "to": "02:00", "days": WEEK}])
    assert [hour for hour in range(24) if over_night["flags"][hour]] == [0, 1, 23]
    at_noon = describe_hours([{"from": "12:00", "to": "13:30", "days": WEEK}])
    assert [hour for hour in range(24) if at_noon["flags"][hour]] == [12, 13]


ON = {"value": True, "source": "default", "set_to": None}
OFF = ON | {"value": False}
BEFORE = {
    "categories": {"social": ON, "security": ON | {"source": "mandatory"}},
    "types": {
        "LIKE": {"push": ON, "sms": OFF},
        "LOCKED": {"push": ON | {"source": "mandatory"}, "sms": OFF | {"source": "category"}},
    },
}


def test_only_what_differs_is_changed() -> None:
    same = {"category.social": ["1"], "type.LIKE.push": ["1"]}
    assert find_changes(BEFORE, same) == {}
    changed = find_changes(BEFORE, {"type.LIKE.sms": ["1"], "quiet": ["none"]})
    assert changed == {
        "categories": {"social": False},
        "types": {"LIKE": {"push": False, "sms": True}},
        "quiet_hours": [False] * 24,
    }


@pytest.mark.parametrize(
    ("form", "hours"),
    [
        ({"quiet": ["default"]}, None),
        (
            {"quiet": ["window"], "from": ["21:00"], "to": ["06:00"]},
            {"from": "21:00", "to": "06:00"},
        ),
    ],
)
def test_quiet_hours_are_changed(form: dict[str, list[str]], hours: object) -> None:
    kept = {"category.social": ["1"], "type.LIKE.push": ["1"]}
    assert find_changes(BEFORE, form | kept) == {"quiet_hours": hours}
