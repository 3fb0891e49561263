"""The front: ids, authentication, limits, errors and metrics of every request."""

import asyncio
import errno
import json
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.access.administrators.authentication import AdminAuthenticator
from clarion.access.administrators.model import AdminSession, hash_token, new_token
from clarion.access.administrators.policy import SignInPolicy
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.callers import Callers
from clarion.access.keys import IssuedKey
from clarion.access.known_apps import KnownApps
from clarion.access.origins import AllowedOrigins
from clarion.access.port import Authenticators
from clarion.access.sql import Apps, Keys, Tickets
from clarion.access.user_tokens import UserTokens
from clarion.errors import Conflict
from clarion.http.asgi import FastRoute, Request, Response, Streamed
from clarion.http.budgets import TOTAL_BYTES
from clarion.http.front import HSTS, Front, Rest
from clarion.http.sending import PART_BYTES, TAIL_PARTS
from clarion.http.visitors import SESSION_COOKIE
from clarion.nodes.memory import MemoryLimits
from clarion.settings import Settings
from clarion.settings import types as setting_types
from clarion.telemetry.metrics import Metrics
from tests.factories import FixedClock, issue, make_administrator, make_link, make_session
from tests.replacing import replace

LIMIT = 8192
JSON = {"Content-Type": "application/json"}
LARGE = bytes(range(256)) * 4096


async def anyone(_app_id: str, _user_id: str) -> bool:
    return True


class Framework:
    """The ASGI application that the front calls: reads the body, then answers or fails."""

    def __init__(self) -> None:
        self.routes = [SimpleNamespace(path="/shared", methods={"GET"})]
        self.seen: list[dict[str, Any]] = []
        self.trouble: Exception | None = None
        self.is_late = False
        self.on_asked: Callable[[], Awaitable[Any]] | None = None
        self.serve: Callable[[Any, Any, Any], Awaitable[None]] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        if self.serve:
            await self.serve(scope, receive, send)
            return
        body = b""
        if self.on_asked:
            await self.on_asked()
        while True:
            message = await receive()
            body += message["body"]
            if not message.get("more_body"):
                break
        if self.trouble and not self.is_late:
            raise self.trouble
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        if self.trouble:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            raise self.trouble
        await send({"type": "http.response.body", "body": body})


@dataclass
class Answer:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    parts: list[bytes] = field(default_factory=list)

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers[b"content-type"] == b"application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        return problem


@dataclass
class Client:
    """Sends requests to a front and its framework."""

    framework: Framework
    front: Front
    issued: IssuedKey
    metrics: Metrics
    client: tuple[str, str] = ("192.0.2.7", "50000")
    http_version: str = "1.1"
    scheme: str = "http"
    on_sent: Callable[[Any], Awaitable[None]] | None = None

    async def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: Iterable[bytes] = (b"",),
    ) -> Answer:
        given = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if not any(name == b"host" for name, _ in given):
            given.insert(0, (b"host", b"localhost"))
        return await self.ask_raw(given, path, method, body)

    async def ask_raw(
        self,
        headers: list[tuple[bytes, bytes]],
        path: str = "/plain",
        method: str = "GET",
        body: Iterable[bytes] = (b"",),
    ) -> Answer:
        answer, parts = Answer(), list(body)

        async def receive() -> dict[str, Any]:
            if not parts:  # the body is sent, and the client stays connected
                await asyncio.Event().wait()
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = dict(message["headers"])
            else:
                answer.body += message["body"]
                answer.parts.append(message["body"])

        scope = {
            "type": "http",
            "http_version": self.http_version,
            "scheme": self.scheme,
            "method": method,
            "path": path,
            "headers": headers,
            "client": self.client,
            "server": ("127.0.0.1", "8080"),
            "query_string": b"",
        }
        await self.front(scope, receive, self.on_sent or send)
        return answer

    async def ask_as_app(self, path: str, **more: Any) -> Answer:
        return await self.ask(
            path, headers={"Authorization": f"Bearer {self.issued.secret.text}"}, **more
        )


async def echo(request: Request) -> Response:
    return Response(200, await request.body())


async def send_much(_request: Request) -> Response:
    return Response(200, LARGE)


async def fail(_request: Request) -> Response:
    raise Conflict


async def stream_parts(_request: Request) -> Streamed:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"one "
        yield b"two"

    return Streamed(parts(), lambda: None, ((b"content-type", b"text/event-stream"),))


async def stream_for_ever(_request: Request) -> Streamed:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield b"begun"
        await asyncio.Event().wait()

    return Streamed(parts(), lambda: None)


Make = Callable[..., Client]


@pytest.fixture
async def make(
    keys: Keys,
    apps: Apps,
    known_apps: KnownApps,
    tickets: Tickets,
    admins: AdminStores,
    clock: FixedClock,
) -> Make:
    issued = issue()
    await keys.create(issued.key)

    def make(build_rest: Callable[[], Rest] | None = None, **changes: Any) -> Client:
        framework, metrics = Framework(), Metrics()
        front = Front(
            routes=[
                FastRoute("GET", "/plain", echo),
                FastRoute("POST", "/plain", echo),
                FastRoute("GET", "/fail", fail),
                FastRoute("GET", "/stream", stream_parts),
                FastRoute("GET", "/large", send_much),
                FastRoute("GET", "/metrics", echo),
                FastRoute("GET", "/docs", echo),
                FastRoute("GET", "/docs/errors", echo),
                FastRoute("GET", "/docs/docs.js", echo),
                FastRoute("POST", "/shared", echo),
                FastRoute("GET", "/v1/own", echo),
                FastRoute("POST", "/v1/own", echo),
                FastRoute("GET", "/v1/endless", stream_for_ever),
            ],
            prefixes={},
            build_rest=build_rest or (lambda: Rest((), {}, framework)),
            authenticators=Authenticators(
                Callers(keys, UserTokens(known_apps), clock, tickets=tickets, is_active=anyone),
                AdminAuthenticator(admins, apps=apps, policy=SignInPolicy(), clock=clock),
            ),
            origins=AllowedOrigins(known_apps, clock),
            limits=MemoryLimits(FixedClock()),
            clock=clock,
            metrics=metrics,
            settings=replace(Settings(), max_body_bytes=LIMIT, **changes),
        )
        return Client(framework, front, issued, metrics)

    return make


@pytest.fixture
def client(make: Make) -> Client:
    return make()


@pytest.mark.parametrize("own", [True, False])
async def test_tls_with_an_own_certificate_is_asked_for_next_time_too(
    make: Make, tmp_path: Path, *, own: bool
) -> None:
    """Not with the development certificate: the rest of localhost is plain HTTP."""
    client = make(tls_certificate=tmp_path / "own.pem" if own else None)
    name = b"strict-transport-security"
    for path in ("/plain", "/v1/nothing"):
        client.scheme = "http"
        assert name not in (await client.ask(path)).headers
        client.scheme = "https"
        answer = await client.ask(path)
        assert answer.headers.get(name) == (HSTS[1] if own else None)


@pytest.mark.parametrize(
    ("proxies", "protocol", "is_sent"),
    [("192.0.2.0/24", "https", True), ("192.0.2.0/24", "http", False), ("", "https", False)],
)
async def test_tls_that_a_proxy_of_ours_ends_is_asked_for_next_time_too(
    make: Make, proxies: str, protocol: str, *, is_sent: bool
) -> None:
    client = make(trusted_proxies=setting_types.networks(proxies))
    for path in ("/plain", "/v1/nothing"):
        headers = (await client.ask(path, headers={"X-Forwarded-Proto": protocol})).headers
        assert headers.get(HSTS[0]) == (HSTS[1] if is_sent else None)


async def test_a_fast_route_is_answered_by_its_function(client: Client) -> None:
    answer = await client.ask("/plain", method="POST", body=[b"a", b"b"])
    assert (answer.status, answer.body) == (200, b"ab")
    assert client.framework.seen == []


async def test_fast_routes_are_answered_before_the_rest_is_built(make: Make) -> None:
    may_build, built = threading.Event(), list[Framework]()

    def build() -> Rest:
        assert may_build.wait(60)
        built.append(Framework())
        return Rest((FastRoute("GET", "/late", echo),), {}, built[0])

    client = make(build)
    asked = ("/elsewhere", "/late", "/plain")
    waiting = [asyncio.create_task(client.ask(path, headers=JSON)) for path in asked]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert done == {waiting[-1]}
    may_build.set()
    assert [each.status for each in await asyncio.gather(*waiting)] == [200, 200, 200]
    assert [len(each.seen) for each in built] == [1]


async def test_a_method_that_the_rest_may_have_is_not_refused_before_it_is_built(
    make: Make,
) -> None:
    late = FastRoute("DELETE", "/plain", echo)
    client = make(lambda: Rest((late,), {}, Framework()))
    assert (await client.ask("/plain", method="DELETE")).status == 200


async def test_a_stream_is_sent_in_parts_and_observed_once(client: Client) -> None:
    answer = await client.ask("/stream")
    assert (answer.status, answer.body) == (200, b"one two")
    assert answer.headers[b"content-type"] == b"text/event-stream"
    assert b"x-request-id" in answer.headers
    observed = 'clarion_http_requests_total{method="GET",route="/stream",status="200"} 1.0'
    assert observed in client.metrics.render().decode()


async def test_other_paths_are_answered_by_the_framework(client: Client) -> None:
    answer = await client.ask("/elsewhere", headers=JSON, body=[b"x"])
    assert (answer.status, answer.body, answer.headers[b"a"]) == (200, b"x", b"b")


async def test_another_method_of_a_fast_route_is_not_allowed(client: Client) -> None:
    answer = await client.ask("/plain", method="DELETE")
    assert answer.problem["code"] == "method_not_allowed"
    assert answer.headers[b"allow"] == b"GET, HEAD, POST"


async def test_another_method_of_a_shared_path_is_answered_by_the_framework(
    client: Client,
) -> None:
    answer = await client.ask("/shared", method="DELETE", headers=JSON, body=[b"x"])
    assert (answer.status, answer.body) == (200, b"x")
    assert len(client.framework.seen) == 1


@pytest.mark.parametrize("path", ["/plain/", "/v1/own", "/v1/own/"])
async def test_other_methods_of_a_path_without_handlers_are_not_allowed(
    client: Client, path: str
) -> None:
    answer = await client.ask_as_app(path, method="DELETE")
    assert (answer.status, answer.problem["code"]) == (405, "method_not_allowed")


async def test_a_trailing_slash_is_ignored(client: Client) -> None:
    answer = await client.ask("/plain/", method="POST", body=[b"a"])
    assert (answer.status, answer.body) == (200, b"a")
    assert client.framework.seen == []


async def test_a_request_id_is_taken_over(client: Client) -> None:
    answer = await client.ask("/plain", headers={"X-Request-Id": "abc:1-2_3.4"[:7]})
    assert answer.headers[b"x-request-id"] == b"abc:1-2"


@pytest.mark.parametrize("given_id", ["", "a b", "x" * 129, "a\nb", 'a"b', "é"])
async def test_an_invalid_request_id_is_replaced(client: Client, given_id: str) -> None:
    answer = await client.ask("/plain", headers={"X-Request-Id": given_id})
    assert answer.headers[b"x-request-id"].startswith(b"0190f000-0000-7000-")


async def test_the_request_id_is_in_the_problem_and_passed_to_the_framework(client: Client) -> None:
    answer = await client.ask("/fail", headers={"X-Request-Id": "r-7"})
    assert answer.problem["request_id"] == "r-7"
    await client.ask("/elsewhere", headers={"X-Request-Id": "r-8"})
    assert client.framework.seen[0]["clarion.request_id"] == "r-8"


async def test_an_error_is_a_problem(client: Client) -> None:
    answer = await client.ask("/fail")
    assert (answer.status, answer.problem["code"]) == (409, "conflict")


async def test_an_unexpected_error_is_a_problem_without_details(client: Client) -> None:
    client.framework.trouble = RuntimeError("password=hunter2")
    answer = await client.ask("/elsewhere")
    assert (answer.status, answer.problem["code"]) == (500, "internal_error")
    assert b"hunter2" not in answer.body


async def test_a_response_that_has_begun_is_aborted(client: Client) -> None:
    client.framework.trouble, client.framework.is_late = RuntimeError(), True
    with pytest.raises(Exception, match="Unexpected error in the server"):
        await client.ask("/elsewhere")


async def test_content_types_are_not_sniffed(client: Client) -> None:
    assert (await client.ask("/plain")).headers[b"x-content-type-options"] == b"nosniff"


@pytest.mark.parametrize("path", ["/v1/keys", "/v1/", "/v1/no/such", "//v1/keys", "/v1//keys"])
async def test_every_path_below_v1_needs_authentication(client: Client, path: str) -> None:
    answer = await client.ask(path)
    assert answer.problem["code"] in {"unauthenticated", "not_found"}
    assert client.framework.seen == []


@pytest.mark.parametrize(
    "path", ["/v1/../metrics", "/v1/gateway/../docs", "/v1/..;/demo", "/v1/..\\metrics", "/v1/.."]
)
async def test_a_path_that_leads_elsewhere_is_none_for_strangers(client: Client, path: str) -> None:
    assert (await client.ask(path)).status == 404
    assert client.framework.seen == []


async def test_an_id_of_two_dots_is_one_for_callers(client: Client) -> None:
    assert (await client.ask("/v1/users/...")).status == 401
    assert (await client.ask_as_app("/v1/users/..")).status == 200


async def test_the_framework_gets_the_caller(client: Client) -> None:
    assert (await client.ask_as_app("/v1/keys")).status == 200
    assert client.framework.seen[0]["clarion.caller"].key_id == client.issued.key.id


async def test_the_allowance_is_in_the_headers(make: Make) -> None:
    answer = await make(requests_per_minute=5).ask_as_app("/v1/keys")
    assert answer.headers[b"ratelimit-limit"] == b"5"
    assert answer.headers[b"ratelimit-remaining"] == b"4"
    assert answer.headers[b"ratelimit-reset"] == b"60"
    assert answer.headers[b"cache-control"] == b"no-store"


async def test_beyond_the_limit_requests_are_refused_until_the_reset(
    make: Make, clock: FixedClock
) -> None:
    client = make(requests_per_minute=1)
    await client.ask_as_app("/v1/keys")
    clock.advance(10_000)
    answer = await client.ask_as_app("/v1/keys")
    assert (answer.status, answer.problem["code"]) == (429, "too_many_requests")
    assert answer.headers[b"retry-after"] == answer.headers[b"ratelimit-reset"] == b"50"
    assert len(client.framework.seen) == 1
    clock.advance(50_000)
    assert (await client.ask_as_app("/v1/keys")).status == 200


async def test_the_limit_of_the_app_holds_for_its_key_too(make: Make) -> None:
    client = make(requests_per_minute=3, app_requests_per_minute=2)
    answers = [await client.ask_as_app("/v1/keys") for _ in range(3)]
    assert [each.status for each in answers] == [200, 200, 429]
    assert [each.headers[b"ratelimit-limit"] for each in answers] == [b"2", b"2", b"2"]
    assert "app" in answers[-1].problem["detail"]


@pytest.mark.parametrize("path", ["/plain", "/elsewhere"])
async def test_a_body_of_the_largest_size_is_taken(client: Client, path: str) -> None:
    answer = await client.ask(path, method="POST", headers=JSON, body=[b"x" * (LIMIT - 1), b"x"])
    assert len(answer.body) == LIMIT


@pytest.mark.parametrize("parts", [[LIMIT + 1], [LIMIT, 1], [1] * 3 + [LIMIT]])
@pytest.mark.parametrize("path", ["/plain", "/elsewhere"])
async def test_a_larger_body_is_refused(client: Client, path: str, parts: list[int]) -> None:
    answer = await client.ask(path, method="POST", body=[b"x" * size for size in parts])
    assert (answer.status, answer.problem["code"]) == (413, "body_too_large")


async def test_a_body_announced_as_larger_is_not_read(client: Client) -> None:
    answer = await client.ask("/elsewhere", headers={"Content-Length": str(LIMIT + 1)})
    assert answer.problem["code"] == "body_too_large"
    assert client.framework.seen == []


@pytest.mark.parametrize("length", ["abc", "-1", "1e3", "²", ""])
async def test_a_content_length_that_is_not_a_number_is_ignored(
    client: Client, length: str
) -> None:
    answer = await client.ask("/elsewhere", headers={"Content-Length": length}, body=[b"x"])
    assert answer.status < 500


async def test_requests_are_counted_by_route_and_not_by_path(client: Client) -> None:
    for path in ("/plain", "/plain/", "/a", "/b", "/c/"):
        await client.ask(path)
    counted = client.metrics.render().decode()
    assert 'clarion_http_requests_total{method="GET",route="/plain",status="200"} 2.0' in counted
    assert 'clarion_http_requests_total{method="GET",route="unmatched",status="200"} 3.0' in counted


async def test_unknown_methods_share_one_label(client: Client) -> None:
    for number in range(20):
        await client.ask("/elsewhere", method=f"MADEUP{number}")
    assert 'method="other",route="unmatched",status="200"} 20.0' in client.metrics.render().decode()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(max_size=30).map("/".__add__), authorization=st.text(max_size=60))
async def test_any_path_and_any_credential_get_an_answer(
    client: Client, path: str, authorization: str
) -> None:
    encodable = authorization.encode(errors="replace").decode()
    answer = await client.ask(path, headers={"Authorization": encodable})
    assert 200 <= answer.status < 500


@pytest.mark.parametrize("hosts", [[], [""], ["a", "b"], ["a", "a"]])
async def test_a_request_without_one_host_is_refused(client: Client, hosts: list[str]) -> None:
    answer = await client.ask_raw([(b"host", host.encode()) for host in hosts or [""]])
    assert (answer.status, answer.problem["code"]) == (400, "malformed_request")
    assert answer.headers[b"connection"] == b"close"


async def test_http_1_0_needs_no_host(client: Client) -> None:
    client.http_version = "1"
    assert (await client.ask_raw([(b"host", b"")])).status == 200


@pytest.mark.parametrize("codings", [["gzip, chunked"], ["gzip", "chunked"], ["chunked"] * 2])
async def test_a_transfer_coding_that_is_not_decoded_is_refused(
    client: Client, codings: list[str]
) -> None:
    given = [(b"transfer-encoding", coding.encode()) for coding in codings]
    answer = await client.ask_raw([(b"host", b"a"), *given])
    assert (answer.status, answer.problem["code"]) == (400, "malformed_request")


async def test_a_body_for_the_framework_must_be_json(client: Client) -> None:
    answer = await client.ask("/elsewhere", method="POST", body=[b"{}"])
    assert (answer.status, answer.problem["code"]) == (415, "not_json")


PRIVATE = ["/metrics", "/metrics/", "/docs", "/docs/errors", "/docs/docs.js", "/openapi.json"]


@pytest.mark.parametrize("path", PRIVATE)
async def test_metrics_and_docs_are_for_this_machine(client: Client, path: str) -> None:
    assert (await client.ask(path)).problem["code"] == "not_found"
    client.client = ("127.0.0.1", "50000")
    assert (await client.ask(path)).status == 200
    client.client = ("::ffff:127.0.0.1", "50000")
    assert (await client.ask(path, headers={"Host": "127.0.0.1:8080"})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "192.0.2.7"},
        {"Forwarded": "for=192.0.2.7"},
        {"X-Real-IP": "192.0.2.7"},
        {"Via": "1.1 proxy"},
        {"Host": "push.example.com"},
        {"Host": "localhost.example.com"},
        {"Host": ""},
    ],
)
async def test_what_a_proxy_on_this_machine_passes_on_is_not_local(
    client: Client, headers: dict[str, str]
) -> None:
    client.client = ("127.0.0.1", "50000")
    assert (await client.ask("/metrics", headers=headers)).status in {400, 404}


async def test_http_1_0_is_how_nginx_passes_on_what_it_adds_nothing_to(client: Client) -> None:
    client.client, client.http_version = ("127.0.0.1", "50000"), "1"
    assert (await client.ask("/metrics")).status == 404


@pytest.mark.parametrize(("setting", "status"), [("public", 200), ("off", 404)])
async def test_a_setting_says_who_can_read_them(make: Make, setting: str, status: int) -> None:
    client = make(metrics_and_docs=setting)
    assert (await client.ask("/metrics")).status == status
    client.client = ("127.0.0.1", "50000")
    assert (await client.ask("/metrics")).status == status


async def test_direct_is_from_anywhere_but_not_through_a_proxy(make: Make) -> None:
    client = make(metrics_and_docs="direct")
    assert (await client.ask("/metrics", headers={"Host": "node-1:8080"})).status == 200
    forwarded = {"Host": "localhost", "X-Forwarded-For": "127.0.0.1"}
    assert (await client.ask("/metrics", headers=forwarded)).status == 404
    client.http_version = "1"
    assert (await client.ask("/metrics")).status == 404


async def test_a_large_response_is_sent_in_parts_with_its_length(client: Client) -> None:
    answer = await client.ask("/large")
    assert answer.body == LARGE
    assert answer.headers[b"content-length"] == b"%d" % len(LARGE)
    assert len(answer.parts) > 64
    assert max(map(len, answer.parts)) == PART_BYTES
    assert sum(map(len, answer.parts[-TAIL_PARTS:])) < 1_000
    assert client.front.sending.held_bytes == 0


async def test_beyond_the_memory_for_responses_a_caller_gets_503(client: Client) -> None:
    stalled = asyncio.Event()

    async def wait(_message: Any) -> None:
        await stalled.wait()

    client.on_sent = wait
    share = TOTAL_BYTES // 4 // len(LARGE)
    waiting = [asyncio.create_task(client.ask("/large")) for _ in range(share)]
    await asyncio.sleep(0)
    client.on_sent = None
    answer = await client.ask("/large")
    assert (answer.status, answer.problem["code"]) == (503, "overloaded")
    assert answer.headers[b"retry-after"] == b"1"
    client.client = ("192.0.2.8", "50000")
    assert (await client.ask("/large")).status == 200
    stalled.set()
    await asyncio.gather(*waiting)


async def test_a_caller_has_a_limit_of_running_requests(client: Client) -> None:
    ended = asyncio.Event()
    client.framework.on_asked = ended.wait
    running = [asyncio.create_task(client.ask_as_app("/v1/slow")) for _ in range(2_000)]
    await asyncio.sleep(0.1)
    answer = await client.ask_as_app("/v1/slow")
    assert (answer.status, answer.problem["code"]) == (429, "too_many_requests")
    ended.set()
    assert {answer.status for answer in await asyncio.gather(*running)} == {200}
    assert (await client.ask_as_app("/v1/slow")).status == 200


LOCAL = ("127.0.0.1", "50000")


async def start_session(admins: AdminStores, **changes: Any) -> tuple[str, AdminSession]:
    """Return the cookie of a new session of an administrator, and the session."""
    account = make_administrator(f"a{new_token()[:8]}", **changes)
    await admins.accounts.create(account, make_link(account.id))
    secret = new_token()
    session = make_session(account.id, secret_hash=hash_token(secret))
    await admins.sessions.start(session)
    return f"{SESSION_COOKIE}={secret}", session


async def test_the_stream_of_an_administrator_ends_with_the_session(
    client: Client, admins: AdminStores
) -> None:
    client.client = LOCAL
    cookie, session = await start_session(admins)
    asking = asyncio.ensure_future(client.ask("/v1/endless", headers={"Cookie": cookie}))
    done, _ = await asyncio.wait([asking], timeout=0.1)
    assert not done
    await admins.sessions.end_all(session.administrator_id)
    async with asyncio.timeout(60):
        answer = await asking
    assert (answer.status, answer.body) == (200, b"begun")


async def test_an_open_stream_does_not_keep_a_session_in_use(
    client: Client, admins: AdminStores, clock: FixedClock
) -> None:
    client.client = LOCAL
    cookie, _ = await start_session(admins)
    asking = asyncio.ensure_future(client.ask("/v1/endless", headers={"Cookie": cookie}))
    await asyncio.wait([asking], timeout=0.1)
    clock.milliseconds += 31 * 60_000
    async with asyncio.timeout(60):
        assert (await asking).status == 200


async def test_the_use_of_a_session_is_recorded_once_a_minute(
    client: Client, admins: AdminStores, clock: FixedClock
) -> None:
    client.client = LOCAL
    cookie, session = await start_session(admins)
    seen = []
    for step_ms in (1_000, 60_000, 1_000):
        clock.milliseconds += step_ms
        assert (await client.ask("/v1/own", headers={"Cookie": cookie})).status == 200
        (stored,) = await admins.sessions.list(session.administrator_id)
        seen.append(stored.last_seen_at - session.last_seen_at)
    assert seen == [0, 61_000, 61_000]


async def test_administrators_have_a_limit_of_their_own(make: Make, admins: AdminStores) -> None:
    client = make(admin_requests_per_minute=2)
    client.client = LOCAL
    cookie, _ = await start_session(admins)
    statuses = [(await client.ask("/v1/own", headers={"Cookie": cookie})).status for _ in range(3)]
    assert statuses == [200, 200, 429]
    other, _ = await start_session(admins)
    assert (await client.ask("/v1/own", headers={"Cookie": other})).status == 200


async def test_sign_ins_of_an_address_are_limited(client: Client) -> None:
    client.client = LOCAL
    statuses = [
        (await client.ask("/v1/admin/session", method="POST", headers=JSON)).status
        for _ in range(121)
    ]
    assert statuses == [200] * 120 + [429]
    client.client = ("127.0.0.2", "50000")
    answer = await client.ask("/v1/admin/setup", method="POST", headers=JSON)
    assert answer.status == 200


async def test_a_key_of_an_app_wins_over_a_cookie(client: Client, admins: AdminStores) -> None:
    client.client = LOCAL
    cookie, _ = await start_session(admins)
    headers = {"Cookie": cookie, "Authorization": f"Bearer {client.issued.secret.text}"}
    # With the cookie, a POST would need the token of the session.
    answer = await client.ask("/v1/own", method="POST", headers=headers)
    assert answer.status == 200
    refused = await client.ask("/v1/own", method="POST", headers={"Cookie": cookie})
    assert refused.problem["code"] == "cross_site_request"


async def test_the_framework_learns_that_its_client_has_left(client: Client) -> None:
    """After the body, as ASGI says: what is sent as it is made ends then."""
    told: list[Any] = []

    async def serve(_scope: Any, receive: Any, _send: Any) -> None:
        told.extend([await receive(), await receive(), await receive()])

    parts: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"", "more_body": False},
        {"type": "http.disconnect"},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    async def send(_message: Any) -> None:
        raise AssertionError

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "GET",
        "path": "/shared",
        "headers": [(b"host", b"localhost")],
        "client": client.client,
        "server": ("127.0.0.1", "8080"),
        "query_string": b"",
    }
    client.framework.serve = serve
    await client.front(scope, receive, send)
    assert [each["type"] for each in told] == ["http.request", *["http.disconnect"] * 2]


async def test_the_rest_is_built_when_descriptors_are_free_again(make: Make) -> None:
    failures = [OSError(errno.EMFILE, "Too many open files")]

    def build() -> Rest:
        if failures:
            raise failures.pop()
        return Rest((FastRoute("GET", "/late", echo),), {}, Framework())

    client = make(build)
    await client.front.complete()
    assert (await client.ask("/late")).status == 200
