"""Current figures over HTTP: connections, and the queue of an app."""

from __future__ import annotations

from typing import Protocol

from litestar import get

from clarion.access.model import Scope
from clarion.clock import Clock, to_rfc3339
from clarion.events.backlog import Backlog
from clarion.http.callers import ApiRequest, app_of
from clarion.http.dependencies import Injected
from clarion.http.views import Timestamp, View


class CountedByApp(Protocol):
    """Connections that are counted by app."""

    def count(self, app_id: str) -> int: ...


class LiveFigures(View):
    """Current figures. Connections are those of this node."""

    at: Timestamp
    """When they were read."""
    devices_online: int
    """Connected devices."""
    clients_online: int
    """Open streams and sockets of users."""
    queue_length: int
    """Jobs that wait, due or held, as of the last half minute."""
    queue_due: int
    """Jobs that could run now."""
    queue_held: int
    """Jobs for a later time: held, scheduled or to be retried; as of the last half minute."""
    queue_age_s: float
    """How long the oldest due job has waited."""


@get("/v1/live", summary="Get live figures", tags=["Statistics"])
async def get_live(
    request: ApiRequest,
    connections: Injected[CountedByApp],
    live_clients: Injected[CountedByApp],
    backlog: Injected[Backlog],
    clock: Injected[Clock],
) -> LiveFigures:
    """Return the app's connections to this node, and the number of its waiting jobs."""
    app_id = app_of(request, Scope.STATS_READ).app_id
    return LiveFigures(
        at=to_rfc3339(clock.now()),
        devices_online=connections.count(app_id),
        clients_online=live_clients.count(app_id),
        queue_length=backlog.count(app_id),
        queue_due=backlog.count_due(app_id),
        queue_held=backlog.count_held(app_id),
        queue_age_s=backlog.age_s(app_id),
    )


ROUTES = (get_live,)
