"""What `clarion device listen` prints."""

from typing import Any

import pytest

from clarion.cli.device.connection import Notification
from clarion.cli.device.output import describe_alert, duration, printable
from clarion.errors import count


def message(payload: dict[str, Any]) -> Notification:
    return Notification("id", payload, 10, "2026-01-31T12:00:00.000Z")


@pytest.mark.parametrize(
    ("alert", "shown"),
    [
        ("just a text", "just a text"),
        ({"body": "a body"}, "a body"),
        ({"title": "A title"}, "A title"),
        ({"title": "A title", "body": "a body", "sound": "x"}, "A title — a body"),
        ({"title": "two\nlines", "body": "\x1b[31mred"}, "two lines —  [31mred"),
    ],
)
def test_an_alert_is_its_title_and_body(alert: object, shown: str) -> None:
    assert describe_alert(message({"aps": {"alert": alert}})) == shown


@pytest.mark.parametrize(
    "payload",
    [{"aps": {"content-available": 1}}, {"aps": 7}, {"x": 1}, {"aps": {"alert": {"body": 5}}}],
)
def test_without_an_alert_the_payload_is_shown(payload: dict[str, Any]) -> None:
    shown = describe_alert(message(payload))
    assert shown.startswith("{")
    assert "[" not in shown


def test_a_long_payload_is_cut() -> None:
    assert len(describe_alert(message({"x": "y" * 4000}))) == 200


def test_letters_of_all_languages_are_printable() -> None:
    assert printable("grün 日本 ✓ שלום") == "grün 日本 ✓ שלום"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (59_900, "59.9 s"),
        (60_000, "1 min"),
        (3_599_999, "59 min"),
        (3_600_000, "1 h"),
        (86_399_999, "23 h"),
        (86_400_000, "1 day"),
        (172_800_000, "2 days"),
    ],
)
def test_a_duration_has_a_readable_unit(milliseconds: int, shown: str) -> None:
    assert duration(milliseconds) == shown


def test_large_numbers_have_commas() -> None:
    assert count(12_345, "message") == "12,345 messages"
