"""Lists the notifications of an app, newest first, by what became of them."""

from __future__ import annotations

import re

import msgspec

from clarion.history.model import Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.history.port import Deliveries, NotificationReader
from clarion.pages import READ_FOR_PAGE, Page, fill_page, refuse_cursor

_CURSOR = re.compile(r"([0-9a-f-]{1,36})\.([0-9a-f-]{1,36})")
Listed = tuple[Notification, tuple[Delivery, ...]]


class NotificationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What to list. A status and a reason are those of one of the deliveries, of the same one."""

    user_id: str | None = None
    type: str | None = None
    delivery_status: DeliveryStatus | None = None
    reason: ReasonCode | None = None

    def matches(self, notification: Notification, deliveries: tuple[Delivery, ...]) -> bool:
        if self.type not in (None, notification.type):
            return False
        if self.delivery_status is None and self.reason is None:
            return True
        return any(
            self.delivery_status in (None, each.status) and self.reason in (None, each.reason)
            for each in deliveries
        )

    @property
    def has_index(self) -> bool:
        """Whether everything that is read is also listed."""
        return self.type is None and self.delivery_status is None and self.reason is None


async def list_notifications(
    notifications: NotificationReader,
    deliveries: Deliveries,
    app_id: str,
    wanted: NotificationFilter,
    *,
    after: str | None,
    limit: int,
) -> Page[Listed]:
    """Return a page; with a filter that has no index, one may have few items and a cursor."""
    read = limit if wanted.has_index else READ_FOR_PAGE
    rows = await _read(notifications, app_id, wanted, _read_cursor(after), read + 1)
    known = await deliveries.find_many(app_id, [each.id for each in rows])

    def item_of(row: Notification) -> Listed | None:
        own = known.get(row.id, ())
        return (row, own) if wanted.matches(row, own) else None

    return fill_page(
        rows,
        read=read,
        limit=limit,
        item_of=item_of,
        place_of=lambda row: f"{row.event_id}.{row.id}",
    )


async def _read(
    notifications: NotificationReader,
    app_id: str,
    wanted: NotificationFilter,
    before: tuple[str, str] | None,
    limit: int,
) -> tuple[Notification, ...]:
    id_ = before[1] if before else None
    if wanted.user_id is not None:
        return await notifications.list_newest_of_user(
            app_id, wanted.user_id, before=id_, limit=limit
        )
    if wanted.delivery_status is DeliveryStatus.FAILED:
        return await notifications.list_newest_failed(app_id, before=id_, limit=limit)
    return await notifications.list_newest(app_id, before=before, limit=limit)


def _read_cursor(after: str | None) -> tuple[str, str] | None:
    if after is None:
        return None
    match = _CURSOR.fullmatch(after)
    if match is None:
        raise refuse_cursor()
    return match[1], match[2]
