"""The figures of the overview, from answers of the API."""

from typing import Any

import pytest

from clarion.admin import figures

HOUR = {"interval": "minute", "from": "2026-01-01T00:00:00.000Z", "to": "2026-01-01T00:03:00.000Z"}


def series(total: int = 0, *, at: str = "00:00", **group: str) -> dict[str, Any]:
    points = [{"at": f"2026-01-01T{at}:00.000Z", "value": total}]
    return {"group": group, "total": total, "percentiles": None, "points": points}


def report(*given: dict[str, Any], until: str | None = "00:03:00") -> dict[str, Any]:
    complete = f"2026-01-01T{until}.000Z" if until else None
    return HOUR | {"complete_until": complete, "series": list(given)}


@pytest.mark.parametrize("until", ["00:03:00", "00:02:01", None])
def test_the_minute_that_is_not_over_is_drawn_because_sums_count_it(until: str | None) -> None:
    given = report(series(4, at="00:02", outcome="delivered"), until=until)
    column = figures.make_column(figures.list_times(given), *given["series"])
    assert column == [0, 0, 4]
    assert sum(filter(None, column)) == figures.sum_all(given)["delivered"]


def test_what_was_sent_is_delivered_or_failed_or_open() -> None:
    given = report(
        series(1_023, outcome="sent"),
        series(775, outcome="delivered"),
        series(8, outcome="failed"),
        series(4, outcome="expired"),
    )
    found = figures.sum_all(given)
    assert found["delivered"] + found["failed"] + found["open"] == found["sent"] == 1_023
    assert (found["open"], found["answered"], round(found["rate"], 3)) == (236, 787, 0.985)
    assert figures.sum_all(report(series(2, outcome="delivered")))["open"] == 0


def test_a_column_has_zero_where_nothing_was_counted() -> None:
    given = report(series(4, at="00:01"), series(1, at="00:01"), series(9, at="23:59"))
    times = figures.list_times(given)
    assert figures.make_column(times, *given["series"]) == [0, 5, 0]


def test_the_rate_of_a_channel_is_of_what_has_ended() -> None:
    given = report(
        series(8, channel="email", outcome="sent"),
        series(3, channel="email", outcome="delivered"),
        series(1, channel="email", outcome="failed"),
        series(2, channel="push", outcome="sent"),
    )
    assert figures.make_rates(given)[0] == ["email", "push"]
    _, email, push = figures.make_rates(given)[1]
    assert (email, push) == ([75.0, None, None], [None, None, None])
    first, second = figures.sum_channels(given)
    assert (first["channel"], first["sent"], first["failed"], first["rate"]) == (
        "email",
        8,
        1,
        0.75,
    )
    assert second["rate"] is None
    assert figures.sum_all(given)["sent"] == 10
    assert figures.of_outcome(given, "failed") == [given["series"][2]]


def test_latencies_are_the_bounds_of_buckets() -> None:
    given = report(series(9, bucket="50"), series(1, bucket="250"))
    _, median, high = figures.make_latencies(given)
    assert (median, high) == ([50.0, None, None], [250.0, None, None])


def test_reasons_are_those_why_something_was_not_sent() -> None:
    given = report(
        series(5, reason="allowed"), series(1, reason="no_device"), series(4, reason="quiet_hours")
    )
    found = figures.count_reasons(given)
    assert [(each["reason"], each["part"]) for each in found] == [
        ("quiet_hours", 1.0),
        ("no_device", 0.25),
    ]
    assert figures.count_reasons(report()) == []
