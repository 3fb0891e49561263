"""Cross-origin requests through the front, with an app that allows one origin."""

from typing import Any

import pytest

from clarion.access.model import AppCaller, Caller, UserCaller
from clarion.errors import OriginNotAllowed
from clarion.http.asgi import Headers, Request, index_headers
from clarion.http.cors import Cors, is_from_another_origin

ANA = UserCaller(app_id="app", user_id="ana")
SERVER = AppCaller(app_id="app", key_id="key", scopes=frozenset())
READABLE = (b"access-control-allow-origin", b"*")


class OneOrigin:
    """The `Origins` port."""

    async def is_allowed(self, app_id: str, origin: str) -> bool:
        return (app_id, origin) == ("app", "https://a.example")


def make(method: str = "GET", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    scope: dict[str, Any] = {"method": method, "headers": raw}

    async def receive() -> dict[str, Any]:
        raise AssertionError

    return Request(scope, receive, "id", None, 1, headers=index_headers(raw))


async def check(caller: Caller, origin: str) -> Headers:
    cors, extra = Cors(OneOrigin()), [(b"x-request-id", b"id")]
    cors.open(extra)
    await cors.check(caller, make(origin=origin), extra)
    return extra


async def test_an_allowed_page_reads_the_answer() -> None:
    assert READABLE in await check(ANA, "https://a.example")


async def test_another_page_is_refused() -> None:
    with pytest.raises(OriginNotAllowed):
        await check(ANA, "https://b.example")


async def test_no_page_reads_what_a_server_is_answered() -> None:
    assert await check(SERVER, "https://a.example") == [(b"x-request-id", b"id")]


@pytest.mark.parametrize(
    ("headers", "is_foreign"),
    [
        ({"host": "a.example"}, False),
        ({"host": "a.example", "origin": "https://a.example"}, False),
        ({"host": "a.example:8080", "origin": "http://a.example:8080"}, False),
        ({"host": "a.example:8080", "origin": "http://a.example"}, True),
        ({"host": "a.example", "origin": "https://b.example"}, True),
        ({"host": "a.example", "origin": "null"}, True),
        ({"host": "null", "origin": "null"}, True),
        ({"origin": "https://a.example"}, True),
    ],
)
def test_which_requests_come_from_another_origin(
    headers: dict[str, str], *, is_foreign: bool
) -> None:
    assert is_from_another_origin(make(**headers)) is is_foreign


def test_only_a_browser_that_asks_is_answered_at_once() -> None:
    cors = Cors(OneOrigin())
    asking = {"origin": "https://a.example", "access_control_request_method": "POST"}
    assert cors.find_preflight(make("OPTIONS", **asking)) is not None
    assert cors.find_preflight(make("OPTIONS", origin="https://a.example")) is None
    assert cors.find_preflight(make("POST", **asking)) is None
