"""The health of this node: its dependencies and its current work."""

from __future__ import annotations

import msgspec

from clarion.access.model import Role
from clarion.admin.node_figures import read_figures
from clarion.admin.page import AdminPage
from clarion.admin.paths import ROOT
from clarion.admin.visit import Visit
from clarion.http.asgi import Response


async def show_health(visit: Visit) -> Response:
    look, request = visit.operations.look, visit.request
    metrics = await look(request, "/metrics")
    return await visit.render(
        "health.html",
        health=msgspec.json.decode(await look(request, "/health")),
        ready=msgspec.json.decode(await look(request, "/ready")),
        figures=read_figures(metrics.decode()),
    )


PAGES = (AdminPage("GET", f"{ROOT}/health", show_health, Role.VIEWER),)
