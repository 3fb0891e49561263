"""Deliveries that end when they are decided: a column of their notification, not rows.

The inbox has a notification in the commit that decides it, and what a rule refuses is never sent.
There is no work on these deliveries, so they never change, and all their times are those of the
notification. Most deliveries are of this kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from clarion.catalog.model import Channel
from clarion.history.model import Delivery, DeliveryStatus, Notification, ReasonCode
from clarion.store.engine import Engine
from clarion.store.statement import keys_of, statement

# One that expired is a row: analytics finds these by their time. Not a set: the hash of a member of
# an enum takes longer than to compare it with three.
_AT_ONCE = (DeliveryStatus.DELIVERED, DeliveryStatus.DROPPED, DeliveryStatus.FOLDED)
# Apps have few types, and these few results.
_KNOWN = 4_096
_encode = msgspec.json.Encoder().encode


SELECT = statement(
    "select_ended_deliveries",
    """SELECT id, app_id, user_id, created_at, ended_deliveries FROM notifications
    WHERE app_id = :app_id AND user_id = :user_id AND id IN (SELECT key FROM json_each(:ids))""",
)


class EndedDecision(NamedTuple):
    """A decision that ended a delivery."""

    channel: Channel
    status: DeliveryStatus
    reason: ReasonCode
    rule: str


class Source(NamedTuple):
    """What a delivery has of its notification."""

    notification_id: str
    app_id: str
    user_id: str
    created_at: int


@lru_cache(_KNOWN)
def read_decisions(text: str) -> tuple[EndedDecision, ...]:
    """Return the decisions of a value of the column."""
    return msgspec.json.decode(text, type=tuple[EndedDecision, ...])


def split(
    notification: Notification, deliveries: Iterable[Delivery]
) -> tuple[str | None, list[Delivery]]:
    """Return the column of a new notification, and the deliveries that are rows."""
    source = Source(
        notification.id, notification.app_id, notification.user_id, notification.created_at
    )
    ended: list[EndedDecision] = []
    rows: list[Delivery] = []
    for each in deliveries:
        decision = EndedDecision(each.channel, each.status, each.reason, each.rule)
        # Nothing that a delivery has may be lost.
        if each.status in _AT_ONCE and each == _restore(source, decision):
            ended.append(decision)
        else:
            rows.append(each)
    return (_encode(ended).decode() if ended else None), rows


def restore(source: Source, text: str | None) -> list[Delivery]:
    """Return the deliveries that the column of a notification has."""
    return [_restore(source, each) for each in read_decisions(text)] if text else []


async def find(
    engine: Engine, app_id: str, user_id: str, ids: Iterable[str]
) -> Mapping[str, list[Delivery]]:
    """Return the deliveries that are part of notifications of a user, by notification id."""
    rows = await engine.fetch(SELECT, app_id=app_id, user_id=user_id, ids=keys_of(ids))
    return {id_: restore(Source(id_, *rest), text) for id_, *rest, text in rows}


def _restore(source: Source, decision: EndedDecision) -> Delivery:
    # The commit that adds it to the inbox also sends and delivers it.
    sent_at = source.created_at if decision.status is DeliveryStatus.DELIVERED else None
    return Delivery(
        notification_id=source.notification_id,
        channel=decision.channel,
        app_id=source.app_id,
        user_id=source.user_id,
        status=decision.status,
        reason=decision.reason,
        rule=decision.rule,
        attempt_count=0 if sent_at is None else 1,
        sent_at=sent_at,
        delivered_at=sent_at,
        last_attempt_at=sent_at,
        decided_at=source.created_at,
    )
