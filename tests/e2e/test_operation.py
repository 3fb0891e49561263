"""Health, readiness, metrics and the pages for developers, as a running server gives them."""

import datetime as dt
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from pathlib import Path
from time import monotonic

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Constellation, Server
from tests.e2e.installation import Installation
from tests.faults.http import frames
from tests.servers import RedisServer

NODES_LIMIT_S = 60.0


def test_a_healthy_server_names_its_services(server: Server, constellation: Constellation) -> None:
    # A node that just started knows of others when it has next looked for them.
    give_up = monotonic() + NODES_LIMIT_S
    count = len(server.installation.api_ports)
    while len((health := server.anyone.get("/health")).json.get("nodes", [])) < count:
        if not constellation or monotonic() > give_up:
            break
    timestamp = dt.datetime.fromisoformat(health.json["timestamp"])
    assert abs(dt.datetime.now(dt.UTC) - timestamp) < dt.timedelta(seconds=60)
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64]
    body = health.json
    nodes = [(each["name"], each["is_leader"]) for each in body.pop("nodes", [])]
    # With SQLite there is one node, and nothing to list.
    others = [(name, False)] * (count - 1)
    assert sorted(nodes) == ([*others, (name, True)] if constellation else [])
    assert (health.status, body) == (
        200,
        {
            "status": "healthy",
            "server_id": name,
            "services": {
                "database": "connected",
                "redis": "connected" if constellation else "not used",
                "bus": "connected" if constellation else "not used",
            },
            "timestamp": health.json["timestamp"],
        },
    )


def test_a_running_server_is_ready(server: Server) -> None:
    ready = server.anyone.get("/ready")
    assert ready.status == 200
    assert ready.json == {"ready": True, "stopping": False, "database": "connected"}


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/docs"])
def test_a_head_is_a_get_without_its_body(server: Server, path: str) -> None:
    answer = server.anyone.ask("HEAD", path)
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("path", ["/health", "/docs"])
def test_a_page_takes_no_other_method(server: Server, path: str) -> None:
    assert server.anyone.post(path).problem["code"] == "method_not_allowed"


def test_metrics_count_requests_and_commits(server: Server) -> None:
    server.make_key()
    families = list(text_string_to_metric_families(server.read_metrics()))
    samples = [sample for family in families for sample in family.samples]
    routes = {sample.labels.get("route") for sample in samples}
    assert "/v1/keys" in routes
    assert any(each.name == "clarion_store_units_total" and each.value > 0 for each in samples)


def test_every_background_loop_is_supervised(server: Server) -> None:
    text = server.anyone.get("/metrics").body.decode()
    loops = re.findall(r'clarion_loop_restarts_total\{loop="(\w+)"\} 0.0', text)
    assert {"worker_1", "worker_2", "queue_age", "inbox_poll", "socket_heartbeats"} < set(loops)
    assert {"expire_messages", "prune_feedback", "prune_orphaned_jobs"} < set(loops)


def test_a_path_that_is_not_there_is_one_route_in_the_metrics(server: Server) -> None:
    for number in range(3):
        server.anyone.get(f"/nowhere/{number}")
        server.app.delete(f"/v1/keys/made-up-{number}")
    text = server.read_metrics()
    assert 'route="unmatched",status="404"' in text
    assert "/nowhere" not in text
    assert "made-up" not in text


def test_the_request_id_is_given_back_or_made(server: Server) -> None:
    given = server.anyone.get("/health", headers={"X-Request-Id": "my-id.1"})
    assert given.headers["x-request-id"] == "my-id.1"
    made = [server.anyone.get("/health").headers["x-request-id"] for _ in range(2)]
    assert made[0] < made[1]


@pytest.fixture
def broken_redis(tmp_path: Path) -> Iterator[tuple[Asker, RedisServer]]:
    with RedisServer() as redis:
        installation = Installation(tmp_path, redis=redis.url, tls_listen="off")
        key = installation.initialise()["app"]["api_key"]
        with installation:
            yield Asker(installation.port, key), redis


def ask_after_a_kill(asker: Asker) -> Answer:
    """Ask for the health; once more if the first answer is that of a check from before the kill.

    Redis is asked once for all who ask at the same time. Such a check is over with its answer.
    """
    health = asker.get("/health")
    return asker.get("/health") if health.json["status"] == "healthy" else health


def test_without_redis_the_server_is_degraded_and_serves(
    broken_redis: tuple[Asker, RedisServer],
) -> None:
    asker, redis = broken_redis
    redis.kill()
    health = ask_after_a_kill(asker)
    assert (health.status, health.json["status"]) == (200, "degraded")
    assert health.json["services"]["redis"] == "disconnected"
    assert asker.get("/ready").status == asker.get("/v1/keys").status == 200
    redis.start()
    assert asker.get("/health").json["status"] == "healthy"


def test_a_node_reports_the_bus_and_hears_it_again(postgres_database: str, tmp_path: Path) -> None:
    with RedisServer() as redis:
        installation = Installation(
            tmp_path, redis=redis.url, database=postgres_database, tls_listen="off"
        )
        installation.initialise()
        with installation:
            asker = Asker(installation.port)
            assert asker.get("/health").json["services"]["bus"] == "connected"
            assert b"clarion_bus_hearing 1.0" in asker.get("/metrics").body
            redis.kill()
            assert ask_after_a_kill(asker).json["services"]["bus"] == "disconnected"
            assert b"clarion_bus_hearing 0.0" in asker.get("/metrics").body
            redis.start()
            assert asker.get("/health").json["status"] == "healthy"
            assert b"clarion_bus_rebuilds_total 2.0" in asker.get("/metrics").body


def test_a_server_starts_without_its_redis(tmp_path: Path) -> None:
    with RedisServer() as redis:
        address = redis.url
    installation = Installation(tmp_path, redis=address, tls_listen="off")
    installation.initialise()
    with installation:
        assert Asker(installation.port).get("/health").json["status"] == "degraded"


def test_a_stop_says_by_what_it_was_asked_for(tmp_path: Path) -> None:
    installation = Installation(tmp_path, tls_listen="off", gateway_listen="off")
    installation.initialise()
    with installation:
        pass
    lines = [json.loads(line) for line in installation.log.read_text().splitlines()]
    (stopping,) = [line for line in lines if line["event"] == "stopping"]
    assert stopping["reason"] == "SIGTERM"


def test_the_first_start_prints_only_what_a_person_reads(tmp_path: Path) -> None:
    """As `make run` does: no line of the log, such as one about migrations, comes first."""
    done = Installation(tmp_path).run("init", "--if-needed", "--greet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lstrip().startswith("Clarion is set up on SQLite ")


@pytest.mark.timing
def test_a_stop_does_not_wait_for_idle_clients_that_read_nothing(tmp_path: Path) -> None:
    """They never confirm that they know of the stop: it would last its whole grace."""
    installation = Installation(tmp_path, grace_s="30")
    installation.initialise()
    ports = (installation.port, installation.tls_port)
    installation.start()
    with ExitStack() as stack:
        idle = stack.enter_context(frames.connected(installation.port))
        asked = stack.enter_context(frames.connected(installation.port))
        flags = frames.END_STREAM | frames.END_HEADERS
        asked.sendall(frames.frame(frames.HEADERS, flags, 1, frames.head("/live")))
        begun = [stack.enter_context(socket.create_connection(("127.0.0.1", x))) for x in ports]
        for each in begun:
            each.sendall(b"GET /live HT")
        for each in (idle, asked):
            assert each.recv(1)
        began = monotonic()
        installation.stop()
        assert monotonic() - began < 15


def test_the_description_is_openapi_3_1_with_every_route(server: Server) -> None:
    description = server.anyone.get("/openapi.json").json
    assert description["openapi"].startswith("3.1")
    assert {"/v1/keys", "/v1/keys/{key_id}", "/v1/caller"} <= set(description["paths"])
    assert all(path.startswith("/v1/") for path in description["paths"])
    assert set(description["paths"]["/v1/keys"]) >= {"get", "post"}
    assert description["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_every_route_of_the_description_is_served(server: Server) -> None:
    for path, methods in server.anyone.get("/openapi.json").json["paths"].items():
        for method, operation in methods.items():
            asked = re.sub(r"\{[^}]+\}", "x", path)
            # Whoever signs in needs no credential, but a body.
            expected = 422 if operation.get("security") == [{}] else 401
            assert server.anyone.ask(method.upper(), asked).status == expected, (method, path)


class Resources(HTMLParser):
    """Gathers whatever a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [name for name in given if name.startswith("on")]
        if tag == "script" and "src" not in given:
            self.inline.append(tag)
        if tag in {"script", "link", "img", "iframe", "source"}:
            self.loaded += [str(given[name]) for name in ("src", "href") if name in given]


@pytest.mark.parametrize("path", ["/docs", "/docs/errors"])
def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(
    server: Server, path: str
) -> None:
    page = server.anyone.get(path)
    resources = Resources()
    resources.feed(page.body.decode())
    assert resources.inline == []
    for each in resources.loaded:
        assert each == "data:," or server.anyone.get(each).status == 200
        assert each.startswith(("/", "data:"))
        assert not each.startswith("//")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_the_browsable_page_asks_no_foreign_host(server: Server) -> None:
    for name in ("docs.js", "swagger-ui.css"):
        text = server.anyone.get(f"/docs/{name}").body.decode()
        assert not re.findall(r"(?:url\(|@import|fetch\()\s*['\"]?https?://", text)
    assert "validatorUrl: null" in server.anyone.get("/docs/docs.js").body.decode()


def test_every_error_code_leads_to_its_place_on_the_page(server: Server) -> None:
    page = server.anyone.get("/docs/errors").body.decode()
    code = server.anyone.get("/v1/keys").problem["code"]
    assert f'id="{code}"' in page
