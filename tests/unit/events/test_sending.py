"""When a delivery to several addresses is tried again, of which some failed."""

import pytest

from clarion.catalog.model import Channel
from clarion.channels.model import BUSY, Failure, NotTried, Retry, Try, Unknown
from clarion.events.sending import AddressProgress, Result, find_next_wait_s

WITHOUT_WAIT = Retry(error_code="500", error_message="")
UNKNOWN = Unknown(error_code="no_answer", error_message="")
OPEN = NotTried(error_code="circuit_open", error_message="", after_s=20.0)
FULL = NotTried(error_code=BUSY, error_message="", after_s=1.0)
PROGRESS = AddressProgress(None)  # type: ignore[arg-type]


def told(seconds: float) -> Retry:
    return Retry(error_code="429", error_message="", after_s=seconds)


@pytest.mark.parametrize(
    ("failures", "least", "most"),
    [
        ([told(2), told(60)], 2, 2.5),
        ([told(3600), WITHOUT_WAIT], 5, 5.5),
        ([told(1), WITHOUT_WAIT], 5, 5.5),
        ([told(1), UNKNOWN], 5, 5.5),
        ([OPEN, WITHOUT_WAIT], 5, 5.5),
        ([OPEN, FULL], 1, 1.5),
        ([OPEN], 20, 20.5),
        ([FULL], 1, 1.5),
    ],
)
def test_the_first_address_that_may_be_tried_decides(
    failures: list[Failure], least: float, most: float
) -> None:
    found = find_next_wait_s(Channel.WEBHOOK, 1, 0.0, failures)
    assert found is not None
    assert least <= found <= most


def test_what_was_not_tried_counts_if_nothing_was() -> None:
    first, second = Try("first", OPEN), Try("second", WITHOUT_WAIT)
    assert Result(PROGRESS, (first, second)).outcome is WITHOUT_WAIT
    assert Result(PROGRESS, (first, Try("second", FULL))).outcome is OPEN
    assert (
        Result(PROGRESS, (Try("first", WITHOUT_WAIT), Try("second", UNKNOWN))).outcome
        is WITHOUT_WAIT
    )
