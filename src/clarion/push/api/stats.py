"""Statistics over HTTP."""

from __future__ import annotations

import msgspec
from litestar import get

from clarion.access.model import Scope
from clarion.clock import Clock, to_rfc3339
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import Moment
from clarion.http.shapes import read_moment
from clarion.http.views import Timestamp
from clarion.push.connections import Connections
from clarion.push.model import MessageStatus
from clarion.push.sql.statistics import Statistics

DAY_MS = 24 * 3600 * 1000
TOPICS = 50


class DeviceCounts(msgspec.Struct):
    """The number of devices. `online` counts those that are connected to this node."""

    total: int
    """All devices."""
    valid: int
    """Devices to which messages may be sent."""
    invalid: int
    """Devices to which they may not."""
    online: int
    """Devices that are connected to this node."""


class TopicCount(msgspec.Struct):
    """A topic and the number of valid devices that are subscribed to it."""

    topic: str
    """The name of the topic."""
    subscribers: int
    """How many valid devices subscribe to it."""


class Stats(msgspec.Struct):
    """Statistics of the calling app. Messages are those accepted at `since` or later."""

    since: Timestamp
    """The start of the period that messages are counted for."""
    devices: DeviceCounts
    """How many devices there are."""
    messages: dict[str, int]
    """How many messages there are, by status."""
    delivery_rate: float | None
    """The share of finished messages that were delivered, 0 to 1; null if none is finished."""
    topics: list[TopicCount]
    """The 50 topics with the most subscribers."""


@get("/v1/stats", summary="Get statistics", tags=["Statistics"])
async def get_stats(
    request: ApiRequest,
    statistics: Injected[Statistics],
    connections: Injected[Connections],
    clock: Injected[Clock],
    since: Moment = None,
) -> Stats:
    """Return the statistics of the last 24 hours, or since a time."""
    caller = app_of(request, Scope.STATS_READ)
    start = read_moment(since, "since")
    start = clock.now() - DAY_MS if start is None else start
    valid, invalid = await statistics.count_devices(caller.app_id)
    counted = await statistics.count_messages(caller.app_id, start)
    topics = await statistics.count_subscribers(caller.app_id, TOPICS)
    return Stats(
        since=to_rfc3339(start),
        devices=DeviceCounts(valid + invalid, valid, invalid, connections.count(caller.app_id)),
        messages={status.value: counted.get(status, 0) for status in MessageStatus},
        delivery_rate=_rate(counted),
        topics=[TopicCount(topic, count) for topic, count in topics],
    )


def _rate(counted: dict[MessageStatus, int]) -> float | None:
    """Return the share of finished messages that were delivered."""
    ends = (MessageStatus.DELIVERED, MessageStatus.FAILED, MessageStatus.EXPIRED)
    finished = sum(counted.get(status, 0) for status in ends)
    return round(counted.get(MessageStatus.DELIVERED, 0) / finished, 4) if finished else None


ROUTES = (get_stats,)
