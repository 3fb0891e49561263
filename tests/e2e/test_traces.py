"""Traces of real servers, as a collector gets them: complete, over restarts and nodes."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.collector import Collector, Recorded, open_collector
from tests.e2e.asking import Asker
from tests.e2e.conftest import own_redis
from tests.e2e.installation import Installation
from tests.e2e.provider import headers_of
from tests.e2e.sending import ANY_HOUR, draft, make_user, send, wait_for_event, wait_until
from tests.peers.webhooks import WebhookReceiver

LIMIT_S = 100
# One of each step; `render` and `send` may be there more than once.
STEPS = ("POST /v1/events", "decide", "render", "deliver", "acknowledge")
EVENTS = 60
ORDER = "A-7-canary"
ADDRESS = ".canary@example.com"


class Caller:
    """An application that traces what it does: its own span, and the headers it sends."""

    def __init__(self, *, is_sampled: bool = True) -> None:
        self.trace_id, self.span_id = secrets.token_hex(16), secrets.token_hex(8)
        self.headers = {
            "traceparent": f"00-{self.trace_id}-{self.span_id}-0{int(is_sampled)}",
            "tracestate": "vendor=opaque",
        }


@dataclass
class World:
    """A server, its app, and a user with a device."""

    server: Installation
    first: dict[str, Any]
    app: Asker
    user_id: str
    device: dict[str, Any]
    type: str = "ORDER"

    @property
    def event(self) -> dict[str, Any]:
        return draft(self.type, user_id=self.user_id) | {"data": {"order": ORDER}}


def set_up(server: Installation, first: dict[str, Any]) -> World:
    """Make what an event needs that goes to an inbox and to a device."""
    app = Asker(server.port, first["app"]["api_key"])
    assert app.ask("PUT", "/v1/types/ORDER", {"default_channels": ["in_app", "push"]}).status == 200
    for channel in ("in_app", "push"):
        template = {"body": "{{ order }} is ready", "variables": ["order"]}
        assert app.ask("PUT", f"/v1/types/ORDER/templates/{channel}", template).status == 200
    email = f"{secrets.token_hex(8)}{ADDRESS}"
    user_id = make_user(app, quiet_hours=ANY_HOUR, email=email)
    device = app.post("/v1/devices", {"platform": "clarion", "user_id": user_id}).json
    return World(server, first, app, user_id, device)


@contextmanager
def connected(world: World) -> Iterator[ClientConnection]:
    """Connect the device while a block runs."""
    url = f"ws://127.0.0.1:{world.server.gateway_port}/v1/gateway"
    hello = {"type": "hello", "token": world.device["token"], "secret": world.device["secret"]}
    with connect(url, ping_interval=None) as socket:
        socket.send(json.dumps(hello))
        assert json.loads(socket.recv(LIMIT_S))["type"] == "ready"
        yield socket


def receive(socket: ClientConnection) -> None:
    """Acknowledge the next message."""
    while (frame := json.loads(socket.recv(LIMIT_S)))["type"] != "notification":
        pass
    socket.send(json.dumps({"type": "ack", "id": frame["id"]}))


def check_complete(spans: list[Recorded], caller: Caller) -> None:
    """Each span has its parent in the trace; that of the first one is the caller's."""
    ids = {each.id for each in spans}
    assert {each.parent_id for each in spans} - ids == {caller.span_id}
    assert {each.name for each in spans if each.parent_id == caller.span_id} == {STEPS[0]}
    assert len(ids) == len(spans)


def check_links(found: dict[str, Recorded]) -> None:
    request, decide, deliver = (found[name] for name in (STEPS[0], "decide", "deliver"))
    assert (decide.parent_id, deliver.parent_id) == (request.id, request.id)
    assert found["acknowledge"].parent_id == deliver.id
    assert found["render"].parent_id in {decide.id, deliver.id}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with open_collector() as opened:
        yield opened


@pytest.fixture(scope="module")
def traced(
    collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, dict[str, Any]]]:
    flags = {"allow_private_targets": "127.0.0.0/8", "log_requests": "all"}
    server = Installation(tmp_path_factory.mktemp("traced"), **flags)
    server.variables = {
        **collector.environment,
        "OTEL_SERVICE_NAME": "shop-notifications",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-collector-key=canary-of-the-collector",
    }
    first = server.initialise()
    with server:
        yield server, first


@pytest.fixture
def world(traced: tuple[Installation, dict[str, Any]]) -> World:
    return set_up(*traced)


def find_lines(world: World, word: str) -> list[dict[str, Any]]:
    lines = world.server.log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in found if each["event"] == word]


def test_one_event_is_one_trace_from_the_request_to_the_acknowledgement_of_the_device(
    world: World, collector: Collector
) -> None:
    caller = Caller()
    with connected(world) as device:
        event_id = send(world.app, world.event, **caller.headers)
        receive(device)
        found = collector.wait(caller.trace_id, *STEPS)
    check_complete(collector.find(caller.trace_id), caller)
    check_links(found)
    decide, deliver, last = (found[name] for name in ("decide", "deliver", "acknowledge"))
    assert decide.attributes["clarion.event.id"] == event_id
    assert decide.attributes["clarion.event.type"] == "ORDER"
    assert decide.attributes["clarion.in_app.status"] == "delivered"
    assert decide.attributes["clarion.push.reason"] == "allowed"
    assert deliver.attributes["clarion.push.status"] == "sent"
    assert last.attributes["clarion.device.id"] == world.device["device_id"]
    assert last.attributes["clarion.message.status"] == "delivered"
    assert found[STEPS[0]].attributes["http.response.status_code"] == 202
    assert last.end_ns >= last.start_ns
    assert {each.resource["service.name"] for each in found.values()} == {"shop-notifications"}
    assert collector.paths[0] == "/v1/traces"
    assert collector.headers[0]["x-collector-key"] == "canary-of-the-collector"


def test_the_log_lines_of_a_request_have_its_trace_id_and_its_request_id(
    world: World, collector: Collector
) -> None:
    caller = Caller()
    send(world.app, world.event, **caller.headers, **{"x-request-id": "of-the-caller-1"})
    found = collector.wait(caller.trace_id, STEPS[0])
    assert found[STEPS[0]].attributes["clarion.request.id"] == "of-the-caller-1"
    (line,) = [
        each for each in find_lines(world, "request") if each["request_id"] == "of-the-caller-1"
    ]
    assert line["trace_id"] == caller.trace_id


def test_a_push_of_a_provider_is_traced_to_the_acknowledgement(
    world: World, collector: Collector
) -> None:
    caller, path = Caller(), f"/3/device/{world.device['token']}"
    headers = headers_of(world.first["app"]) | caller.headers
    with connected(world) as device:
        anyone = Asker(world.server.port)
        assert anyone.post(path, {"aps": {"alert": ORDER}}, headers=headers).status == 200
        receive(device)
        found = collector.wait(caller.trace_id, "POST /3/", "acknowledge")
    assert found["POST /3/"].parent_id == caller.span_id
    assert found["acknowledge"].parent_id == found["POST /3/"].id
    assert len(collector.find(caller.trace_id)) == 2


async def test_a_webhook_carries_the_trace_to_its_receiver(
    world: World, collector: Collector
) -> None:
    caller = Caller()
    async with WebhookReceiver() as hook:
        given = {"kind": "webhook", "settings": {"url": hook.url}}
        made = await asyncio.to_thread(world.app.ask, "PUT", "/v1/providers/webhook/main", given)
        hook.secret = made.json["secret"]
        event = world.event | {"channels": ["webhook"]}
        event_id = await asyncio.to_thread(send, world.app, event, **caller.headers)
        found = await asyncio.to_thread(collector.wait, caller.trace_id, "send", "deliver")
        await asyncio.to_thread(wait_for_event, world.app, event_id)
    (headers,) = hook.headers
    assert hook.faults == []
    assert headers["traceparent"] == f"00-{caller.trace_id}-{found['send'].id}-01"
    assert headers["tracestate"] == "vendor=opaque"
    assert found["send"].parent_id == found["deliver"].id
    assert found["send"].attributes["clarion.provider"] == "main"
    assert found["send"].attributes["clarion.outcome"] == "delivered"


def test_a_trace_that_its_caller_does_not_sample_is_not_recorded(
    world: World, collector: Collector
) -> None:
    caller, after = Caller(is_sampled=False), Caller()
    wait_for_event(world.app, send(world.app, world.event, **caller.headers))
    send(world.app, world.event, **after.headers)
    collector.wait(after.trace_id, STEPS[0], "decide", "deliver")
    assert collector.find(caller.trace_id) == []


def test_a_request_without_a_valid_context_begins_a_trace_of_its_own(
    world: World, collector: Collector
) -> None:
    request_id = f"r-{secrets.token_hex(8)}"
    given = {"traceparent": f"00-{'0' * 32}-{'1' * 16}-01", "x-request-id": request_id}
    assert world.app.get("/v1/events?limit=1", headers=given).status == 200

    def look() -> Recorded | None:
        spans = list(collector.spans)
        found = [s for s in spans if s.attributes.get("clarion.request.id") == request_id]
        return found[0] if found else None

    span = wait_until(look)
    assert (span.name, span.parent_id) == ("GET /v1/events", "")


def test_no_span_has_a_secret_a_text_or_an_address(world: World, collector: Collector) -> None:
    caller = Caller()
    with connected(world) as device:
        send(world.app, world.event, **caller.headers)
        receive(device)
        collector.wait(caller.trace_id, *STEPS)
    exported = b"".join(collector.bodies)
    hidden = [
        world.first["app"]["api_key"],
        world.device["token"],
        world.device["secret"],
        world.user_id,
        ORDER,
        ADDRESS,
    ]
    assert world.device["device_id"].encode() in exported
    assert [each for each in hidden if each.encode() in exported] == []


def test_a_trace_goes_on_after_restarts(tmp_path: Path, collector: Collector) -> None:
    """Accepted, then decided and delivered, then acknowledged: each by another process."""
    caller = Caller()
    server = Installation(tmp_path, roles="api,gateway")
    server.variables = collector.environment
    first = server.initialise()
    with server:
        world = set_up(server, first)
        event_id = send(world.app, world.event, **caller.headers)
    assert [each.name for each in collector.find(caller.trace_id)] == [STEPS[0]]
    server.set_flag("roles", "api,gateway,worker")
    with server:
        wait_for_event(world.app, event_id)
        collector.wait(caller.trace_id, "deliver")
    assert "acknowledge" not in {each.name for each in collector.find(caller.trace_id)}
    with server, connected(world) as device:
        receive(device)
        found = collector.wait(caller.trace_id, *STEPS)
    check_complete(collector.find(caller.trace_id), caller)
    check_links(found)


def test_one_trace_goes_over_two_nodes(
    tmp_path: Path, collector: Collector, postgres_database: str
) -> None:
    """Accepted and acknowledged on one node, decided and delivered on the other."""
    shared = {"database": postgres_database, "redis": own_redis()}
    front = make_node(tmp_path, "front", "api,gateway", **shared)
    first = front.initialise()
    worker = make_node(tmp_path, "worker", "worker", data=str(front.data), **shared)
    front.variables = worker.variables = collector.environment
    caller = Caller()
    with front, worker:
        world = set_up(front, first)
        with connected(world) as device:
            send(world.app, world.event, **caller.headers)
            receive(device)
            found = collector.wait(caller.trace_id, *STEPS)
    check_complete(collector.find(caller.trace_id), caller)
    check_links(found)
    nodes = {name: found[name].resource["service.instance.id"] for name in STEPS}
    assert nodes == {
        STEPS[0]: "front",
        "decide": "worker",
        "render": "worker",
        "deliver": "worker",
        "acknowledge": "front",
    }


def make_node(folder: Path, name: str, roles: str, **flags: str) -> Installation:
    (folder / name).mkdir()
    return Installation(folder / name, server_id=name, roles=roles, **flags)


def test_a_collector_that_never_answers_harms_nothing(tmp_path: Path) -> None:
    with open_collector(hangs=True) as collector:
        server = make_few_spans(tmp_path, collector.environment)
        check_work_goes_on(server)
        assert 0 < len(collector.bodies) < EVENTS


def test_a_collector_that_is_away_harms_nothing(tmp_path: Path) -> None:
    with open_collector() as collector:
        gone = collector.environment
    check_work_goes_on(make_few_spans(tmp_path, gone))


def make_few_spans(folder: Path, variables: dict[str, str]) -> Installation:
    """Make a server whose queue of spans is soon full."""
    server = Installation(folder)
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "32", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"}
    server.variables = variables | small
    return server


def check_work_goes_on(server: Installation) -> None:
    first = server.initialise()
    with server:
        world = set_up(server, first)
        with connected(world) as device:
            ids = [send(world.app, world.event) for _ in range(EVENTS)]
            for _ in ids:
                receive(device)
            assert {wait_for_event(world.app, each)["status"] for each in ids} == {"completed"}
    # It has stopped in good order, and what it said of the collector did not fill the log.
    assert len(find_lines(world, "library_warning")) <= 10


def test_without_configuration_nothing_is_stored(tmp_path: Path) -> None:
    caller = Caller()
    server = Installation(tmp_path, log_requests="all")
    first = server.initialise()
    with server:
        world = set_up(server, first)
        with connected(world) as device:
            wait_for_event(world.app, send(world.app, world.event, **caller.headers))
            receive(device)
    for table in ("events", "messages"):
        rows = list(
            apsw.Connection(str(server.data / "clarion.db")).execute(
                f"SELECT DISTINCT trace FROM {table}"  # noqa: S608 - a name of ours
            )
        )
        assert rows == [(None,)]
    # The log can be searched by the trace of the caller all the same.
    assert caller.trace_id in {each.get("trace_id") for each in find_lines(world, "request")}
    assert "traces_on" not in server.events()
