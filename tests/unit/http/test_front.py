"""The front: what every request passes, whatever answers it behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.access.callers import Callers
from clarion.access.issuing import IssuedKey
from clarion.access.port import Apps, Keys, Vault
from clarion.access.user_tokens import UserTokens
from clarion.errors import Conflict
from clarion.http.asgi import Request, Response, Streamed
from clarion.http.fast_routes import FastRoute
from clarion.http.front import Front
from clarion.nodes.memory import MemoryLimits
from clarion.settings import Settings
from clarion.telemetry.metrics import Metrics
from tests.factories import FixedClock, issue

LIMIT = 8192


class Framework:
    """Stands behind the front as an ASGI application: reads the body, then does as told."""

    def __init__(self) -> None:
        self.routes = [SimpleNamespace(path="/shared")]
        self.seen: list[dict[str, Any]] = []
        self.trouble: Exception | None = None
        self.is_late = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message.get("more_body"):
                break
        if self.trouble and not self.is_late:
            raise self.trouble
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        if self.trouble:
            raise self.trouble
        await send({"type": "http.response.body", "body": body})


@dataclass
class Answer:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers[b"content-type"] == b"application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        return problem


@dataclass
class House:
    """A front with all it needs, to be asked."""

    framework: Framework
    front: Front
    issued: IssuedKey
    metrics: Metrics

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: Iterable[bytes] = (b"",),
    ) -> Answer:
        answer, parts = Answer(), list(body)

        async def receive() -> dict[str, Any]:
            if not parts:  # all was said, and the caller stays
                await asyncio.Event().wait()
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = dict(message["headers"])
            else:
                answer.body += message["body"]

        given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": method, "path": path, "headers": given}
        await self.front(scope, receive, send)
        return answer

    async def ask_as_app(self, path: str, **more: Any) -> Answer:
        return await self.ask(
            path, headers={"Authorization": f"Bearer {self.issued.secret.text}"}, **more
        )


async def echo(request: Request) -> Response:
    return Response(200, await request.body())


async def fail(_request: Request) -> Response:
    raise Conflict


async def tell(_request: Request) -> Streamed:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"one "
        yield b"two"

    return Streamed(parts(), lambda: None, ((b"content-type", b"text/event-stream"),))


Make = Callable[..., House]


@pytest.fixture
async def make(keys: Keys, apps: Apps, vault: Vault, clock: FixedClock) -> Make:
    issued = issue()
    await keys.create(issued.key)

    def make(**changes: Any) -> House:
        framework, metrics = Framework(), Metrics()
        front = Front(
            routes=[
                FastRoute("GET", "/plain", echo),
                FastRoute("POST", "/plain", echo),
                FastRoute("GET", "/fail", fail),
                FastRoute("GET", "/stream", tell),
                FastRoute("POST", "/shared", echo),
                FastRoute("GET", "/v1/own", echo),
            ],
            prefixes={},
            framework=framework,
            authenticator=Callers(keys, UserTokens(apps, vault), clock),
            limits=MemoryLimits(),
            clock=clock,
            metrics=metrics,
            settings=replace(Settings(), max_body_bytes=LIMIT, **changes),
        )
        return House(framework, front, issued, metrics)

    return make


@pytest.fixture
def house(make: Make) -> House:
    return make()


async def test_a_route_of_the_table_is_answered_by_its_function(house: House) -> None:
    answer = await house.ask("/plain", method="POST", body=[b"a", b"b"])
    assert (answer.status, answer.body) == (200, b"ab")
    assert house.framework.seen == []


async def test_a_stream_is_sent_in_parts_and_observed_once(house: House) -> None:
    answer = await house.ask("/stream")
    assert (answer.status, answer.body) == (200, b"one two")
    assert answer.headers[b"content-type"] == b"text/event-stream"
    assert b"x-request-id" in answer.headers
    observed = 'clarion_http_requests_total{method="GET",route="/stream",status="200"} 1.0'
    assert observed in house.metrics.render().decode()


async def test_the_rest_is_answered_by_the_framework(house: House) -> None:
    answer = await house.ask("/elsewhere", body=[b"x"])
    assert (answer.status, answer.body, answer.headers[b"a"]) == (200, b"x", b"b")


async def test_a_route_asked_by_another_method_says_so(house: House) -> None:
    answer = await house.ask("/plain", method="DELETE")
    assert answer.problem["code"] == "method_not_allowed"


async def test_a_path_that_the_framework_serves_too_is_asked_of_it_by_another_method(
    house: House,
) -> None:
    answer = await house.ask("/shared", method="DELETE", body=[b"x"])
    assert (answer.status, answer.body) == (200, b"x")
    assert len(house.framework.seen) == 1


@pytest.mark.parametrize("path", ["/plain/", "/v1/own", "/v1/own/"])
async def test_a_path_of_the_front_alone_refuses_other_methods(house: House, path: str) -> None:
    answer = await house.ask_as_app(path, method="DELETE")
    assert (answer.status, answer.problem["code"]) == (405, "method_not_allowed")


async def test_a_slash_more_at_the_end_is_the_same_route(house: House) -> None:
    answer = await house.ask("/plain/", method="POST", body=[b"a"])
    assert (answer.status, answer.body) == (200, b"a")
    assert house.framework.seen == []


async def test_a_request_id_is_taken_over(house: House) -> None:
    answer = await house.ask("/plain", headers={"X-Request-Id": "abc:1-2_3.4"[:7]})
    assert answer.headers[b"x-request-id"] == b"abc:1-2"


@pytest.mark.parametrize("given_id", ["", "a b", "x" * 129, "a\nb", 'a"b', "é"])
async def test_a_request_id_that_is_none_is_replaced(house: House, given_id: str) -> None:
    answer = await house.ask("/plain", headers={"X-Request-Id": given_id})
    assert answer.headers[b"x-request-id"].startswith(b"0190f000-0000-7000-")


async def test_the_request_id_is_in_the_problem_and_behind_the_front(house: House) -> None:
    answer = await house.ask("/fail", headers={"X-Request-Id": "r-7"})
    assert answer.problem["request_id"] == "r-7"
    await house.ask("/elsewhere", headers={"X-Request-Id": "r-8"})
    assert house.framework.seen[0]["clarion.request_id"] == "r-8"


async def test_an_error_is_a_problem(house: House) -> None:
    answer = await house.ask("/fail")
    assert (answer.status, answer.problem["code"]) == (409, "conflict")


async def test_an_error_that_nobody_foresaw_is_a_problem_that_tells_nothing(house: House) -> None:
    house.framework.trouble = RuntimeError("password=hunter2")
    answer = await house.ask("/elsewhere")
    assert (answer.status, answer.problem["code"]) == (500, "internal_error")
    assert b"hunter2" not in answer.body


async def test_an_answer_that_has_begun_is_broken_off(house: House) -> None:
    house.framework.trouble, house.framework.is_late = RuntimeError(), True
    with pytest.raises(Exception, match="Unexpected error in the server"):
        await house.ask("/elsewhere")


async def test_no_page_is_sniffed(house: House) -> None:
    assert (await house.ask("/plain")).headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/", "/v1/no/such", "//v1/keys", "/v1//keys"])
async def test_behind_v1_nobody_goes_unknown(house: House, path: str) -> None:
    answer = await house.ask(path)
    assert answer.problem["code"] in {"unauthenticated", "not_found"}
    assert house.framework.seen == []


async def test_the_framework_is_told_who_calls(house: House) -> None:
    assert (await house.ask_as_app("/v1/keys")).status == 200
    assert house.framework.seen[0]["clarion.caller"].key_id == house.issued.key.id


async def test_the_allowance_is_in_the_headers(make: Make) -> None:
    answer = await make(requests_per_minute=5).ask_as_app("/v1/keys")
    assert answer.headers[b"ratelimit-limit"] == b"5"
    assert answer.headers[b"ratelimit-remaining"] == b"4"
    assert answer.headers[b"ratelimit-reset"] == b"60"
    assert answer.headers[b"cache-control"] == b"no-store"


async def test_beyond_the_limit_a_caller_is_told_to_wait(make: Make, clock: FixedClock) -> None:
    house = make(requests_per_minute=1)
    await house.ask_as_app("/v1/keys")
    clock.advance(10_000)
    answer = await house.ask_as_app("/v1/keys")
    assert (answer.status, answer.problem["code"]) == (429, "too_many_requests")
    assert answer.headers[b"retry-after"] == answer.headers[b"ratelimit-reset"] == b"50"
    assert len(house.framework.seen) == 1
    clock.advance(50_000)
    assert (await house.ask_as_app("/v1/keys")).status == 200


@pytest.mark.parametrize("path", ["/plain", "/elsewhere"])
async def test_a_body_of_the_largest_size_is_taken(house: House, path: str) -> None:
    answer = await house.ask(path, method="POST", body=[b"x" * (LIMIT - 1), b"x"])
    assert len(answer.body) == LIMIT


@pytest.mark.parametrize("parts", [[LIMIT + 1], [LIMIT, 1], [1] * 3 + [LIMIT]])
@pytest.mark.parametrize("path", ["/plain", "/elsewhere"])
async def test_a_larger_body_is_refused(house: House, path: str, parts: list[int]) -> None:
    answer = await house.ask(path, method="POST", body=[b"x" * size for size in parts])
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


async def test_a_body_that_says_it_is_larger_is_not_even_read(house: House) -> None:
    answer = await house.ask("/elsewhere", headers={"Content-Length": str(LIMIT + 1)})
    assert answer.problem["code"] == "body_too_large"
    assert house.framework.seen == []


@pytest.mark.parametrize("length", ["abc", "-1", "1e3", "²", ""])
async def test_a_length_that_is_no_number_does_no_harm(house: House, length: str) -> None:
    answer = await house.ask("/elsewhere", headers={"Content-Length": length}, body=[b"x"])
    assert answer.status < 500


async def test_requests_are_counted_by_route_and_not_by_path(house: House) -> None:
    for path in ("/plain", "/a", "/b", "/c"):
        await house.ask(path)
    counted = house.metrics.render().decode()
    assert 'clarion_http_requests_total{method="GET",route="/plain",status="200"} 1.0' in counted
    assert 'clarion_http_requests_total{method="GET",route="unmatched",status="200"} 3.0' in counted


async def test_methods_that_somebody_made_up_do_not_grow_the_metrics(house: House) -> None:
    for number in range(20):
        await house.ask("/elsewhere", method=f"MADEUP{number}")
    assert 'method="other",route="unmatched",status="200"} 20.0' in house.metrics.render().decode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=30).map("/".__add__), authorization=st.text(max_size=60))
async def test_any_path_and_any_credential_get_an_answer(
    house: House, path: str, authorization: str
) -> None:
    encodable = authorization.encode(errors="replace").decode()
    answer = await house.ask(path, headers={"Authorization": encodable})
    assert 200 <= answer.status < 500
