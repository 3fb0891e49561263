"""Health, readiness and metrics of a node, for operators and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from clarion.clock import Clock, to_rfc3339
from clarion.http.asgi import FastRoute, Request, Response, respond_json
from clarion.nodes.model import Node
from clarion.nodes.port import Dependency, Membership
from clarion.telemetry.metrics import Metrics

CHECK_TIMEOUT_S = 2.0
# An outage is noticed, and its end, within twice this time.
CHECK_EVERY_S = 2.0
_NO_STORE = (b"cache-control", b"no-store")
_TEXT = (
    (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
    (b"cache-control", b"no-store"),
)


@dataclass(slots=True, eq=False, kw_only=True)
class Health:
    """The state of this node.

    Without the database it is unhealthy. Without any other dependency it is degraded: it still
    serves requests. It is not ready before all of its processes have started, while it stops, or
    while background loops keep failing.
    """

    server_id: str
    database: Dependency
    others: Mapping[str, Dependency | None]
    clock: Clock
    metrics: Metrics
    find_failing_loops: Callable[[], Sequence[str]] = tuple
    # None with SQLite: there is one node.
    membership: Membership | None = None
    is_stopping: bool = False
    # Whether all processes that share the listeners have started.
    are_all_ready: Callable[[], bool] = lambda: True
    # Tests move the clock of this server.
    is_of_tests: bool = False
    # Returns the metrics of all processes that share the listeners, if there are several.
    gather_metrics: Callable[[], Awaitable[bytes]] | None = None

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        return (
            FastRoute("GET", "/health", self.health),
            FastRoute("GET", "/ready", self.ready),
            FastRoute("GET", "/live", self.live),
            FastRoute("GET", "/metrics", self.render_metrics),
        )

    async def health(self, request: Request) -> Response:
        """Answer with the state of each dependency; 503 only if nothing can be served.

        A client without a key gets the overall state, not the parts of the server.
        """
        dependencies = {"database": self.database, **self.others}
        states = await asyncio.gather(*(self._check(*each) for each in dependencies.items()))
        services = dict(zip(dependencies, states, strict=True))
        status = _summarise(services)
        body: dict[str, object] = {"status": status, "timestamp": to_rfc3339(self.clock.now())}
        if self.is_of_tests:
            body["clock"] = "test"
        if request.is_trusted:
            body |= {"server_id": self.server_id, "services": services}
        if request.is_trusted and self.membership is not None:
            body["nodes"] = [_view(each, self.membership) for each in self.membership.nodes]
        code = 503 if status == "unhealthy" else 200
        return respond_json(code, msgspec.json.encode(body), _NO_STORE)

    async def ready(self, request: Request) -> Response:
        """Answer whether to send traffic to this node."""
        database = await self._check("database", self.database)
        failing = list(self.find_failing_loops())
        is_serving = self.are_all_ready() and not self.is_stopping
        is_ready = database == "connected" and is_serving and not failing
        body: dict[str, object] = {"ready": is_ready}
        if request.is_trusted:
            body |= {"stopping": self.is_stopping, "database": database}
        if request.is_trusted and failing:
            body["failing"] = failing
        return respond_json(200 if is_ready else 503, msgspec.json.encode(body), _NO_STORE)

    async def live(self, _request: Request) -> Response:
        """Answer as long as the event loop runs: a restart would bring back no dependency."""
        return respond_json(200, b'{"live":true}', _NO_STORE)

    async def render_metrics(self, _request: Request) -> Response:
        """Answer with the metrics in Prometheus format."""
        gather = self.gather_metrics
        return Response(200, await (gather or self.metrics.render_in_turns)(), _TEXT)

    async def run(self) -> None:
        """Check the dependencies at intervals, so that their metrics are never old."""
        dependencies = {"database": self.database, **self.others}
        while True:
            await asyncio.gather(*(self._check(*each) for each in dependencies.items()))
            await asyncio.sleep(CHECK_EVERY_S)

    async def _check(self, name: str, dependency: Dependency | None) -> str:
        if dependency is None:
            return "not used"
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await dependency.check()
        except Exception:  # noqa: BLE001 - any error means that the dependency did not answer
            self.metrics.dependency_health.labels(name).set(0)
            return "disconnected"
        self.metrics.dependency_health.labels(name).set(1)
        return "connected"


def _view(node: Node, membership: Membership) -> dict[str, object]:
    return {
        "id": node.id,
        "name": node.name,
        "version": node.version,
        "started_at": to_rfc3339(node.started_at),
        "seen_at": to_rfc3339(node.seen_at),
        "is_leader": node.id == membership.leader_id,
    }


def _summarise(services: Mapping[str, str]) -> str:
    if services["database"] != "connected":
        return "unhealthy"
    return "degraded" if "disconnected" in services.values() else "healthy"
