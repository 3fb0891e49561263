"""The state of a notification: the sum of its deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.events.model import DeliveryStatus, NotificationStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from clarion.events.model import Delivery

# A delivery in one of these has nothing to add to what the others say.
_SILENT = frozenset({DeliveryStatus.DROPPED, DeliveryStatus.FOLDED})
_WAITS = frozenset({DeliveryStatus.HELD, DeliveryStatus.COLLECTED})
_ONE_WORD = {
    DeliveryStatus.FAILED: NotificationStatus.FAILED,
    DeliveryStatus.EXPIRED: NotificationStatus.EXPIRED,
    DeliveryStatus.CANCELLED: NotificationStatus.CANCELLED,
    DeliveryStatus.DELIVERED: NotificationStatus.DELIVERED,
}


def sum_up(deliveries: Iterable[Delivery]) -> NotificationStatus:
    """Return the one word for a notification."""
    everything = list(deliveries)
    said = {each.status for each in everything} - _SILENT
    if not said:
        return _of_silent({each.status for each in everything})
    if DeliveryStatus.QUEUED in said:
        is_tried = any(each.attempt_count for each in everything)
        return NotificationStatus.PROCESSING if is_tried else NotificationStatus.QUEUED
    if said & _WAITS:
        return NotificationStatus.QUEUED
    if len(said) == 1:
        return _ONE_WORD[said.pop()]
    if DeliveryStatus.DELIVERED in said:
        return NotificationStatus.PARTIALLY_DELIVERED
    return NotificationStatus.FAILED


def _of_silent(statuses: set[DeliveryStatus]) -> NotificationStatus:
    if DeliveryStatus.FOLDED in statuses:
        return NotificationStatus.FOLDED
    return NotificationStatus.DROPPED if statuses else NotificationStatus.CREATED
