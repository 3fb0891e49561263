"""How the messages of a notification end its delivery: steps of the units that change them.

The delivery is `delivered` when a device acknowledges its message. When the last message ends
without that, the delivery is `expired` or `failed`. Only a delivery that is `sent` ends this way,
and only if no device waits: while it is queued or has a job, more messages may follow. A delivery
that was passed to another device's push service stays `sent`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clarion.catalog.model import Channel
from clarion.events.sql.expressions import has_job
from clarion.history.model import DeliveryStatus, ReasonCode
from clarion.history.sql.deliveries import CONFIRM
from clarion.push.model import GATEWAY, Message
from clarion.push.sql.expressions import HAS_OPEN_MESSAGE, has_other, of_waiting
from clarion.store.statement import Statement, Step, statement

PUSH = Channel.PUSH.value
EXPIRED = (DeliveryStatus.EXPIRED.value, ReasonCode.EXPIRED.value)
FAILED = (DeliveryStatus.FAILED.value, ReasonCode.ADDRESS_GONE.value)

CONFIRM_ATTEMPT = statement(
    "confirm_attempt",
    f"""UPDATE attempts SET status = 'delivered' WHERE notification_id = :notification_id
    AND channel = '{PUSH}' AND device_id = :device_id AND status = 'sent'""",
)
_OF_NOTIFICATION = f"notification_id = :notification_id AND channel = '{PUSH}' AND status = 'sent'"
_JOB = has_job("deliveries.app_id", f"deliveries.notification_id || '/{PUSH}'")
_IS_LAST = f"""NOT {_JOB}
    AND NOT EXISTS (SELECT 1 FROM attempts
    WHERE attempts.notification_id = deliveries.notification_id AND attempts.channel = '{PUSH}'
    AND attempts.status IN ('sent', 'delivered') AND attempts.provider <> '{GATEWAY}')"""
# After some of its messages have ended, by themselves or in this unit.
END = statement(
    "end_delivery",
    f"""UPDATE deliveries SET status = :status, reason = :reason, decided_at = :now
    WHERE {_OF_NOTIFICATION} AND {_IS_LAST} AND NOT {HAS_OPEN_MESSAGE}""",
)


def end_before(name: str, end: tuple[str, str], ending: str) -> Statement:
    """Return the statement that ends deliveries just before their last messages end.

    `ending` is the condition of the messages that the next step ends. Then these are found among
    those that wait, which have an index; afterwards they would be among all that have ended.
    """
    status, reason = end
    return statement(
        name,
        f"""UPDATE deliveries SET status = '{status}', reason = '{reason}', decided_at = :now
        WHERE channel = '{PUSH}' AND status = 'sent' AND notification_id IN (
          {of_waiting(ending)})
        AND {_IS_LAST} AND NOT {has_other("deliveries.notification_id", ending)}""",
    )


def confirm(messages: Iterable[Message], now: int) -> tuple[Step, ...]:
    """Return the steps that make the deliveries of acknowledged messages delivered."""
    pairs = sorted((each.notification_id or "", each.device_id, each.app_id) for each in messages)
    return (
        CONFIRM.many(
            [
                CONFIRM.bind(app_id=a, notification_id=n, channel=PUSH, since=0, now=now)
                for n, _, a in pairs
            ]
        ),
        CONFIRM_ATTEMPT.many(
            [CONFIRM_ATTEMPT.bind(notification_id=n, device_id=d) for n, d, _ in pairs]
        ),
    )


def end_after(
    notification_ids: Iterable[str | None], end: tuple[str, str], now: int
) -> tuple[Step, ...]:
    """Return the step that ends deliveries after their messages; none without messages."""
    found: Sequence[str] = sorted({each for each in notification_ids if each is not None})
    if not found:
        return ()
    status, reason = end
    rows = [END.bind(notification_id=n, status=status, reason=reason, now=now) for n in found]
    return (END.many(rows),)
