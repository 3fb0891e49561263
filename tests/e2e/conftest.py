"""A real server for each constellation, once per worker; tests share it, each with its own app."""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from clarion.access.model import Role
from clarion.access.provisioning import create_app
from clarion.access.sql import Apps
from clarion.access.vault import Vault
from clarion.clock import SystemClock
from clarion.store.opening import open_engine
from clarion.system.data_directory import DataDirectory
from tests.cluster.nodes import Cluster
from tests.conftest import IS_NIGHT, run_apart, run_sql, worker_number
from tests.e2e.administrators import make_key as make_admin_key
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.servers import REDIS, RedisCluster, shared_url

EMBEDDED, STANDARD = "embedded", "standard"
# Tests by files that `make test` also has on PostgreSQL and Redis, because the store could make a
# difference that the contract suite does not see; `make test-all` has all of them there.
STORE_FILES = frozenset(
    {
        "test_consistency",
        "test_events",
        "test_inbox",
        "test_operation",
        "test_privacy",
        "test_push_deliveries",
    }
)
# Three nodes behind a round-robin proxy.
CLUSTER = "cluster"
ON_REDIS_CLUSTER = "redis_cluster"
# Tests by files that `make test-all` also runs against three nodes; the long run has all of them
# there, and so has CLARION_TEST_NODES=3.
CLUSTER_FILES = frozenset(
    {
        "test_devices",
        "test_gateway",
        "test_inbox_sockets",
        "test_inbox_streams",
        "test_isolation",
        "test_keys",
        "test_publish",
        "test_push_deliveries",
    }
)
HAS_ALL_ON_CLUSTER = IS_NIGHT or os.environ.get("CLARION_TEST_NODES") == "3"
# The lower half of the databases is emptied by tests that use Redis themselves.
REDIS_HALF = 128
CLUSTER_SHIFT = 64


@dataclass(frozen=True)
class Server:
    """A running installation, and what its first run made."""

    installation: Installation
    first: dict[str, Any]

    @property
    def anyone(self) -> Asker:
        """A client without a key."""
        return Asker(self.installation.port)

    @property
    def app(self) -> Asker:
        """A client with the key of the first app."""
        return self.with_key(self.first["app"]["api_key"])

    def read_metrics(self) -> str:
        """Return the metrics of all nodes: a request is counted by the one that served it."""
        ports = self.installation.api_ports
        return "".join(Asker(port).get("/metrics").body.decode() for port in ports)

    def with_key(self, key: str) -> Asker:
        return Asker(self.installation.port, key)

    def make_key(self, *scopes: str) -> Asker:
        """Create another key of the app, and return a client with it."""
        made = self.app.post("/v1/keys", {"label": "test", "scopes": list(scopes) or ["*"]})
        assert made.status == 201, made.body
        return self.with_key(made.json["api_key"])

    def make_admin(self, role: Role = Role.ADMIN) -> Asker:
        """Add an administrator with a role for all apps, and return a client with their key."""
        return self.with_key(make_admin_key(self.installation, role))

    def make_admin_of(self, app_roles: Mapping[str, Role]) -> Asker:
        """Add an administrator with roles for single apps, and return a client with their key."""
        key = make_admin_key(self.installation, app_roles=app_roles, is_for_all_apps=False)
        return self.with_key(key)

    def make_app(self) -> dict[str, Any]:
        """Create another app in the store, and return its id and its key."""
        return run_apart(self._make_app())

    async def _make_app(self) -> dict[str, Any]:
        url = self.installation.database_url
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            new = await create_app(
                name="Other",
                bundle_id=f"com.example.a{uuid.uuid4().hex}",
                apps=Apps(engine),
                vault=Vault(*DataDirectory(self.installation.data).read_master_keys()),
                clock=SystemClock(),
            )
        finally:
            await engine.close()
        return {
            "id": new.app.id,
            "api_key": new.api_key,
            "user_secret": new.user_secret,
            "bundle_id": new.app.bundle_id,
            "team_id": new.app.team_id,
            "key_id": new.key_id,
            "provider_key": new.provider_key_pem,
        }

    def make_app_by_command(self) -> dict[str, Any]:
        """Create another app by the command line, while the server runs."""
        done = self.installation.run("app", "create", "Other", f"com.example.a{uuid.uuid4().hex}")
        assert done.returncode == 0, done.stderr
        card: dict[str, Any] = json.loads(done.stdout)
        return card


class Constellation(dict[str, str]):
    """The flags that make an installation what it is, and whether it has several nodes."""

    is_cluster = False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the constellations of a test, unless it says itself which ones it is for."""
    test = metafunc.definition
    own = {mark.args[0] for mark in test.iter_markers("parametrize")}
    if "constellation" not in metafunc.fixturenames or "constellation" in own:
        return
    is_chosen = HAS_ALL_ON_CLUSTER or test.path.stem in CLUSTER_FILES
    is_on_cluster = is_chosen and test.get_closest_marker("one_node") is None
    later = [] if test.path.stem in STORE_FILES else [pytest.mark.rest]
    chosen = [
        pytest.param(EMBEDDED, marks=pytest.mark.watched),
        pytest.param(STANDARD, marks=later),
    ]
    if is_on_cluster:
        chosen.append(pytest.param(CLUSTER, marks=pytest.mark.rest))
    metafunc.parametrize("constellation", chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def constellation(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Constellation]:
    if request.param == EMBEDDED:
        yield Constellation()
        return
    name = f"e2e_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres_url, f"CREATE DATABASE {name}"))
    made = Constellation(
        database=urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}")),
        redis=find_redis(request),
    )
    made.is_cluster = request.param in {CLUSTER, ON_REDIS_CLUSTER}
    yield made
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def server(
    constellation: Constellation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    build = Cluster if constellation.is_cluster else Installation
    installation = build(folder, max_header_bytes="8192", demo="on", **constellation)
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


@pytest.fixture(autouse=True)
def no_stall(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that made the shared server block its event loop."""
    yield
    if "server" in request.fixturenames:
        shared = request.getfixturevalue("server")
        assert not isinstance(shared, Server) or shared.installation.take_stalls() == []


@pytest.fixture(scope="session")
def own_redis_cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster of three primaries that no other test empties."""
    with RedisCluster() as cluster:
        yield cluster


def find_redis(request: pytest.FixtureRequest) -> str:
    """Return the address of the Redis of a constellation."""
    if request.param == ON_REDIS_CLUSTER:
        cluster: RedisCluster = request.getfixturevalue("own_redis_cluster")
        return cluster.url
    return own_redis(is_cluster=request.param == CLUSTER)


def own_redis(*, is_cluster: bool = False) -> str:
    number = REDIS_HALF + worker_number() + (CLUSTER_SHIFT if is_cluster else 0)
    return urlunsplit(urlsplit(shared_url(REDIS))._replace(path=f"/{number}"))
