"""What operators and their machines ask: health, readiness, metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from clarion.clock import to_rfc3339
from clarion.http.asgi import Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clarion.clock import Clock
    from clarion.nodes.port import Dependency
    from clarion.telemetry.metrics import Metrics

CHECK_TIMEOUT_S = 2.0
_JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
_TEXT = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class Operation:
    """Answers for the state of this node.

    Without the database it is unhealthy; without any other dependency it is degraded: it serves,
    and says so.
    """

    def __init__(
        self,
        *,
        server_id: str,
        database: Dependency,
        others: Mapping[str, Dependency | None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.is_stopping = False
        self._server_id = server_id
        self._database = database
        self._others = others
        self._clock = clock
        self._metrics = metrics

    async def health(self, _request: Request) -> Response:
        """Answer with each dependency; 503 only if nothing can be served."""
        names = ["database", *self._others]
        states = await asyncio.gather(
            self._state("database", self._database),
            *(self._state(name, dependency) for name, dependency in self._others.items()),
        )
        services = dict(zip(names, states, strict=True))
        status = _judge(services)
        answer = {
            "status": status,
            "server_id": self._server_id,
            "services": services,
            "timestamp": to_rfc3339(self._clock.now()),
        }
        return Response(503 if status == "unhealthy" else 200, msgspec.json.encode(answer), _JSON)

    async def ready(self, _request: Request) -> Response:
        """Answer whether to send traffic here."""
        state = await self._state("database", self._database)
        is_ready = state == "connected" and not self.is_stopping
        body = {"ready": is_ready, "stopping": self.is_stopping, "database": state}
        return Response(200 if is_ready else 503, msgspec.json.encode(body), _JSON)

    async def metrics(self, _request: Request) -> Response:
        """Answer Prometheus."""
        return Response(200, self._metrics.render(), _TEXT)

    async def _state(self, name: str, dependency: Dependency | None) -> str:
        if dependency is None:
            return "not used"
        try:
            await asyncio.wait_for(dependency.check(), CHECK_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - whatever it was, it did not answer
            self._metrics.dependency_health.labels(name).set(0)
            return "disconnected"
        self._metrics.dependency_health.labels(name).set(1)
        return "connected"


def _judge(services: Mapping[str, str]) -> str:
    if services["database"] != "connected":
        return "unhealthy"
    return "degraded" if "disconnected" in services.values() else "healthy"
