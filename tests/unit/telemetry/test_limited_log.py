"""A log that strangers cannot fill."""

from structlog.testing import capture_logs

from clarion.telemetry.limited_log import LINES_LIMIT, WINDOW_MS, LimitedLog
from tests.factories import FixedClock


def test_an_event_is_logged_so_often_in_a_minute() -> None:
    clock = FixedClock()
    log = LimitedLog(clock)
    with capture_logs() as lines:
        for _ in range(LINES_LIMIT + 5):
            log.warning("noise", number=1)
        log.warning("other")
        clock.advance(WINDOW_MS)
        log.warning("noise", number=2)
        clock.advance(WINDOW_MS)
        log.warning("noise", number=3)
    assert [line["event"] for line in lines] == [
        *["noise"] * LINES_LIMIT,
        "other",
        "noise",
        "noise",
    ]
    assert [line.get("left_out") for line in lines[-2:]] == [5, None]
