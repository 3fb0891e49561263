"""A real server for each constellation, once per worker; tests share it, each with its own app."""

import asyncio
import json
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.conftest import run_sql, worker_number
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.servers import REDIS, shared_url

CONSTELLATIONS = ["embedded", "standard"]
# The lower half of the databases is emptied by tests that use Redis themselves.
REDIS_HALF = 128


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

    def with_key(self, key: str) -> Asker:
        return Asker(self.installation.port, key)

    def make_key(self, *scopes: str) -> Asker:
        """Create another key of the app, and return a client with it."""
        made = self.app.post("/v1/keys", {"label": "test", "scopes": list(scopes) or ["*"]})
        assert made.status == 201, made.body
        return self.with_key(made.json["api_key"])

    def make_app(self) -> dict[str, Any]:
        """Create another app by the command line, while the server runs."""
        done = self.installation.run("app", "create", "Other", f"com.example.a{uuid.uuid4().hex}")
        assert done.returncode == 0, done.stderr
        card: dict[str, Any] = json.loads(done.stdout)
        return card


@pytest.fixture(scope="session", params=CONSTELLATIONS)
def constellation(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[dict[str, str]]:
    """The flags that make an installation what it is."""
    if request.param == "embedded":
        yield {}
        return
    name = f"e2e_{uuid.uuid4().hex}"
    run_apart(run_sql(postgres_url, f"CREATE DATABASE {name}"))
    yield {
        "database": urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}")),
        "redis": own_redis(),
    }
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(scope="session")
def server(
    constellation: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    installation = Installation(
        tmp_path_factory.mktemp("server"), max_header_bytes="8192", **constellation
    )
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


def own_redis() -> str:
    number = REDIS_HALF + worker_number()
    return urlunsplit(urlsplit(shared_url(REDIS))._replace(path=f"/{number}"))


def run_apart(work: Coroutine[None, None, None]) -> None:
    """Run something in a loop of its own: fixtures of the session have none."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, work).result()
