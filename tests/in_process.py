"""The front of a server, built in this process: its routes as they are, without listeners."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clarion.app.routes import build_front
from clarion.app.services import Services
from clarion.app.stores import open_stores
from clarion.http.front import Front
from clarion.http.health import Health
from clarion.nodes.bus import NoBus
from clarion.nodes.memory import MemoryLimits
from clarion.settings import load
from clarion.system.supervisor import Supervisor


@asynccontextmanager
async def opened_front(folder: Path) -> AsyncIterator[tuple[Front, Services]]:
    settings, supervisor = load({"data": str(folder), "demo": "on"}), Supervisor()
    async with open_stores(settings) as stores:
        limits = MemoryLimits(stores.clock)
        services = Services(settings, stores, supervisor, NoBus(is_alone=True), limits)
        health = Health(
            server_id="test",
            database=stores.engine,
            others={},
            clock=stores.clock,
            metrics=services.metrics,
            find_failing_loops=supervisor.find_failing,
        )
        try:
            front = build_front(settings, stores, services, health, limits)
            await front.complete()
            yield front, services
        finally:
            await services.close()
