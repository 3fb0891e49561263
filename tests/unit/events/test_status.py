"""The state of a notification is the sum of its deliveries, and never contradicts them."""

from itertools import combinations_with_replacement

import pytest

from clarion.events.status import summarize
from clarion.history.model import Delivery, DeliveryStatus, NotificationStatus
from tests.pipeline import make_delivery, make_event, make_notification

NOTIFICATION = make_notification(make_event())


def deliveries(*statuses: str, tried: int = 0) -> list[Delivery]:
    return [
        make_delivery(NOTIFICATION, status=DeliveryStatus(each), attempt_count=tried)
        for each in statuses
    ]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((), "created"),
        (("queued",), "queued"),
        (("held",), "held"),
        (("collected",), "held"),
        (("delivered", "held"), "held"),
        (("queued", "held"), "queued"),
        (("delivered", "queued"), "queued"),
        (("delivered",), "delivered"),
        (("delivered", "delivered"), "delivered"),
        (("delivered", "dropped", "folded"), "delivered"),
        (("delivered", "failed"), "partially_delivered"),
        (("delivered", "expired"), "partially_delivered"),
        (("failed",), "failed"),
        (("failed", "dropped"), "failed"),
        (("failed", "expired"), "failed"),
        (("expired", "expired"), "expired"),
        (("cancelled",), "cancelled"),
        (("dropped", "dropped"), "dropped"),
        (("dropped", "folded"), "folded"),
    ],
)
def test_the_word_for_it(statuses: tuple[str, ...], expected: str) -> None:
    assert summarize(deliveries(*statuses)) == expected


def test_what_was_tried_and_is_to_be_tried_again_is_being_processed() -> None:
    assert summarize(deliveries("queued", tried=1)) is NotificationStatus.PROCESSING


@pytest.mark.parametrize("statuses", list(combinations_with_replacement(DeliveryStatus, 3)))
def test_it_says_delivered_only_if_something_was(statuses: tuple[str, ...]) -> None:
    said = summarize(deliveries(*statuses))
    assert summarize(deliveries(*reversed(statuses))) is said
    if said in {NotificationStatus.DELIVERED, NotificationStatus.PARTIALLY_DELIVERED}:
        assert "delivered" in statuses
        assert not {"queued", "held", "collected"} & set(statuses)
    if said is NotificationStatus.DELIVERED:
        assert not {"failed", "expired", "cancelled"} & set(statuses)
