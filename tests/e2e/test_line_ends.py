"""JSON answers end with a line feed, so that a terminal shows the next prompt on its own line."""

import json

import pytest

from tests.e2e.conftest import Server

EVENT = {"type": "POST_LIKE", "recipient": {"user_id": "line-ends"}, "actor": {"name": "Bo"}}
ANSWERS = [
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/openapi.json", None),
    ("PUT", "/v1/users/line-ends", {"name": "Ana"}),
    ("POST", "/v1/users/batch", {"users": [{"id": "line-ends"}]}),
    ("POST", "/v1/events", EVENT),
    ("POST", "/v1/events/batch", {"events": [EVENT]}),
    ("POST", "/v1/explain", EVENT),
    ("GET", "/v1/users/line-ends/notifications", None),
    ("GET", "/v1/users/line-ends/export", None),
    ("GET", "/v1/users/no-such-user", None),
    ("POST", "/v1/events", {"type": 7}),
    ("GET", "/v1/no-such-path", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ANSWERS)
def test_an_answer_ends_with_one_line_feed(
    server: Server, method: str, path: str, body: object
) -> None:
    server.app.ask("PUT", "/v1/users/line-ends", {"name": "Ana"})
    answer = server.app.ask(method, path, body)
    assert answer.body.count(b"\n") == 1
    assert answer.body.endswith(b"}\n")
    assert "content-length" not in answer.headers or (
        int(answer.headers["content-length"]) == len(answer.body)
    )
    json.loads(answer.body)


def test_a_repeated_answer_is_the_same(server: Server) -> None:
    headers = {"Idempotency-Key": "line-ends"}
    server.app.ask("PUT", "/v1/users/line-ends", {"name": "Ana"})
    first, second = (server.app.post("/v1/events", EVENT, headers=headers) for _ in range(2))
    assert first.body == second.body
    assert second.headers["idempotent-replayed"] == "true"


def test_apns_answers_are_as_those_of_apple(server: Server) -> None:
    refused = server.anyone.post("/3/device/00", {"aps": {}})
    assert refused.body == b'{"reason":"MissingProviderToken"}'
