"""What follows from an answer: the time that a provider asks for, however it writes it."""

import pytest

from clarion.channels.answers import (
    LONGEST_WAIT_S,
    Action,
    Answer,
    AnswerTable,
    read_retry_after,
)
from clarion.channels.model import Retry
from tests.factories import NOW

TABLE = AnswerTable(Answer("429", Action.RETRY, "Later."), default=Action.REJECT)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("999999999999999999999999", 999_999_999.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_a_time_is_read(value: str, seconds: float) -> None:
    assert read_retry_after(value, NOW) == seconds


def test_a_date_far_away_is_read_and_limited() -> None:
    told = read_retry_after("Fri, 31 Dec 9999 23:59:59 GMT", NOW)
    assert told is not None
    outcome = TABLE.judge(["429"], "", retry_after=told)
    assert isinstance(outcome, Retry)
    assert outcome.after_s == LONGEST_WAIT_S


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "-1",
        "-0",
        "1.5",
        "1e9",
        "0x10",
        "soon",
        "²",
        "\x00",
        "1, 2",
        "Thu, 32 Jan 2026 00:00:00 GMT",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "Wed, 21 Oct 2026 07:28:00",  # of what zone?
        "Wed, 21 Oct 2026 07:28:00 +9999999999",
        "x" * 100_000,
    ],
)
def test_what_is_no_time_is_left_out(value: str | None) -> None:
    assert read_retry_after(value, NOW) is None
