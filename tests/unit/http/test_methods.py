"""The methods of a path, whoever answers them."""

from types import SimpleNamespace

import pytest

from clarion.http.asgi import FastRoute, Request, Response
from clarion.http.paths import Methods


async def answer(_request: Request) -> Response:
    return Response(200)


@pytest.fixture
def methods() -> Methods:
    fast = (FastRoute("POST", "/v1/events", answer),)
    routes = [
        SimpleNamespace(path="/v1/events", methods={"GET"}),
        SimpleNamespace(path="/v1/events/{event_id:str}", methods={"GET"}),
        SimpleNamespace(path="/v1/events/{event_id:str}", methods={"DELETE"}),
        SimpleNamespace(path="/v1/events/batch.old", methods={"PUT"}),
    ]
    return Methods(fast, routes)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/events", {"GET", "POST", "OPTIONS"}),
        ("/v1/events/", {"GET", "POST", "OPTIONS"}),
        ("/v1/events/1", {"GET", "DELETE", "OPTIONS"}),
        ("/v1/events/batch.old", {"PUT", "OPTIONS"}),
        ("/v1/events/batchXold", {"GET", "DELETE", "OPTIONS"}),
        ("/v1/events/1/2", set()),
        ("/v1", set()),
        ("/", set()),
    ],
)
def test_all_methods_of_a_path_are_found(methods: Methods, path: str, expected: set[str]) -> None:
    assert methods.find(path) == expected
