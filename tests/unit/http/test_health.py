"""Health, readiness and metrics of a node."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from clarion.errors import StoreUnavailable
from clarion.http.asgi import Request, Response
from clarion.http.health import Health
from clarion.telemetry.metrics import Metrics
from tests.factories import FixedClock


class Answers:
    """A dependency that answers."""

    async def check(self) -> None:
        return


class Fails:
    """A dependency that says it is not well."""

    async def check(self) -> None:
        raise StoreUnavailable


class Silent:
    """A dependency that never answers."""

    async def check(self) -> None:
        await asyncio.Event().wait()


def make(
    database: Any, redis: Any, find_failing_loops: Callable[[], Sequence[str]] = tuple
) -> Health:
    return Health(
        server_id="node-1",
        database=database,
        others={"redis": redis},
        clock=FixedClock(),
        metrics=Metrics(),
        find_failing_loops=find_failing_loops,
    )


def asked(*, is_trusted: bool = True) -> Request:
    async def receive() -> dict[str, Any]:
        return {}

    request = Request({}, receive, "r", None, 0)
    request.is_trusted = is_trusted
    return request


def body(response: Response) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(response.body)
    return read


@pytest.mark.parametrize(
    ("database", "redis", "expected"),
    [
        (Answers(), None, (200, "healthy", "connected", "not used")),
        (Answers(), Answers(), (200, "healthy", "connected", "connected")),
        (Answers(), Fails(), (200, "degraded", "connected", "disconnected")),
        (Answers(), Silent(), (200, "degraded", "connected", "disconnected")),
        (Fails(), Answers(), (503, "unhealthy", "disconnected", "connected")),
        (Fails(), None, (503, "unhealthy", "disconnected", "not used")),
    ],
)
async def test_health_names_each_dependency(
    database: Any, redis: Any, expected: tuple[int, str, str, str]
) -> None:
    response = await make(database, redis).health(asked())
    answer = body(response)
    services = answer["services"]
    assert (response.status, answer["status"], services["database"], services["redis"]) == expected
    assert answer["server_id"] == "node-1"
    assert answer["timestamp"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(("database", "status"), [(Answers(), 200), (Fails(), 503)])
async def test_a_node_is_ready_if_its_database_answers(database: Any, status: int) -> None:
    response = await make(database, Fails()).ready(asked())
    assert response.status == status
    assert body(response)["ready"] is (status == 200)


async def test_a_node_that_stops_is_healthy_but_not_ready() -> None:
    node = make(Answers(), None)
    node.is_stopping = True
    assert (await node.ready(asked())).status == 503
    assert (await node.health(asked())).status == 200


async def test_a_node_whose_loops_keep_failing_is_not_ready_and_names_them() -> None:
    failing: list[str] = []
    node = make(Answers(), None, lambda: failing)
    assert "failing" not in body(await node.ready(asked()))
    failing += ["pipeline", "pruner"]
    response = await node.ready(asked())
    assert (response.status, body(response)) == (
        503,
        {
            "ready": False,
            "stopping": False,
            "database": "connected",
            "failing": ["pipeline", "pruner"],
        },
    )


async def test_the_last_check_is_in_the_metrics() -> None:
    node = make(Answers(), Fails())
    await node.health(asked())
    text = (await node.render_metrics(asked())).body.decode()
    assert 'apns_dependency_health{dependency="database"} 1.0' in text
    assert 'apns_dependency_health{dependency="redis"} 0.0' in text


async def test_no_answer_about_health_is_kept_by_a_proxy() -> None:
    node = make(Answers(), None)
    for answer in (await node.health(asked()), await node.ready(asked())):
        assert (b"cache-control", b"no-store") in answer.headers


async def test_a_stranger_gets_the_state_and_no_details() -> None:
    node = make(Answers(), Fails(), lambda: ["pruner"])
    health = body(await node.health(asked(is_trusted=False)))
    assert health == {"status": "degraded", "timestamp": "2026-01-01T00:00:00.000Z"}
    assert body(await node.ready(asked(is_trusted=False))) == {"ready": False}
