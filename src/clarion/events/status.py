"""The status of a notification, derived from its deliveries."""

from __future__ import annotations

from collections.abc import Iterable

from clarion.history.model import Delivery, DeliveryStatus, NotificationStatus

# These count only if no delivery has another status.
_UNSENT = frozenset({DeliveryStatus.DROPPED, DeliveryStatus.FOLDED})
_WAITING = frozenset({DeliveryStatus.HELD, DeliveryStatus.COLLECTED})


def summarize(deliveries: Iterable[Delivery]) -> NotificationStatus:
    """Return the status of a notification."""
    known = list(deliveries)
    statuses = {each.status for each in known} - _UNSENT
    if not statuses:
        return _of_unsent({each.status for each in known})
    if DeliveryStatus.QUEUED in statuses:
        is_tried = any(each.attempt_count for each in known)
        return NotificationStatus.PROCESSING if is_tried else NotificationStatus.QUEUED
    if statuses & _WAITING:
        return NotificationStatus.HELD
    if DeliveryStatus.SENT in statuses:
        is_part = DeliveryStatus.DELIVERED in statuses
        return NotificationStatus.PARTIALLY_DELIVERED if is_part else NotificationStatus.PROCESSING
    if len(statuses) == 1:
        # It is failed, expired, cancelled or delivered, by the same name.
        return NotificationStatus(statuses.pop())
    if DeliveryStatus.DELIVERED in statuses:
        return NotificationStatus.PARTIALLY_DELIVERED
    return NotificationStatus.FAILED


def _of_unsent(statuses: set[DeliveryStatus]) -> NotificationStatus:
    if DeliveryStatus.FOLDED in statuses:
        return NotificationStatus.FOLDED
    return NotificationStatus.DROPPED if statuses else NotificationStatus.CREATED
