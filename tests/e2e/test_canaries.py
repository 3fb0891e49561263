"""Secrets and texts through every path that takes one; then they are looked for everywhere.

Where they are looked for: everything that servers and commands print, the file of the audit log,
`/metrics`, traces, `clarion doctor`, the page Health, and what other callers are answered.
"""

import asyncio
import base64
import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from tests.collector import open_collector
from tests.conftest import run_apart, run_sql
from tests.e2e.canaries import Canaries, secret_part
from tests.e2e.canary_paths import (
    World,
    deliver,
    look_around,
    push_to,
    use_administrators,
    use_app_keys,
    use_bodies,
    use_commands,
    use_credentials,
    use_devices,
    use_providers,
    use_sockets,
)
from tests.e2e.conftest import Server, own_redis
from tests.e2e.echoing_peers import Peers
from tests.e2e.installation import Installation, run_clarion
from tests.e2e.sending import wait_until
from tests.peers.mail_servers import Authority

pytestmark = pytest.mark.timeout(300)


@dataclass
class Backing:
    """Where the data is: the flags for it, and the passwords in them."""

    flags: dict[str, str] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    # Make the servers forget the passwords.
    lock_out: Callable[[], None] = lambda: None


@pytest.fixture(params=["sqlite", pytest.param("postgres and redis", marks=pytest.mark.rest)])
def backing(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Backing]:
    if request.param == "sqlite":
        yield Backing()
        return
    name, words = f"canary_{uuid.uuid4().hex}", [f"canary{uuid.uuid4().hex}" for _ in range(2)]
    for sql in (
        f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{words[0]}'",
        f"CREATE DATABASE {name} OWNER {name}",
    ):
        run_apart(run_sql(postgres_url, sql))
    database = urlsplit(postgres_url)
    place = f"{name}:{words[0]}@{database.hostname}:{database.port}"
    where = urlsplit(own_redis())
    client: Any = redis.Redis.from_url(own_redis())
    rights = ("on", f">{words[1]}", "~*", "&*", "+@all")
    client.execute_command("ACL", "SETUSER", name, *rights)

    def lock_out() -> None:
        client.execute_command("ACL", "SETUSER", name, "resetpass")
        client.execute_command("CLIENT", "KILL", "USER", name)

    yield Backing(
        {
            "database": urlunsplit(database._replace(netloc=place, path=f"/{name}")),
            "redis": urlunsplit(where._replace(netloc=f"{name}:{words[1]}@{where.netloc}")),
        },
        {"password of PostgreSQL": words[0], "password of Redis": words[1]},
        lock_out,
    )
    client.execute_command("ACL", "DELUSER", name)
    client.close()
    run_apart(run_sql(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))
    run_apart(run_sql(postgres_url, f"DROP ROLE {name}"))


@pytest.fixture
def world(backing: Backing, tmp_path: Path) -> Iterator[World]:
    canaries = Canaries()
    for name, value in backing.passwords.items():
        canaries.watch(name, value)
    authority = Authority(tmp_path / "authority")
    installation = Installation(
        tmp_path,
        log_level="debug",
        log_format="json",
        allow_private_targets="127.0.0.0/8",
        **backing.flags,
    )
    with Peers(authority.context).serving() as peers, open_collector() as collector:
        installation.variables = collector.environment
        first = installation.initialise()
        app = first["app"]
        canaries.watch("first API key", secret_part(app["api_key"]))
        canaries.watch("first user secret", app["user_secret"])
        installation.start()
        try:
            yield World(
                Server(installation, first), canaries, peers, authority, collector, tmp_path
            )
        finally:
            installation.stop()


def test_no_secret_and_no_text_is_found_elsewhere(
    world: World, backing: Backing, capsys: pytest.CaptureFixture[str]
) -> None:
    use_credentials(world)
    use_app_keys(world)
    use_administrators(world)
    use_bodies(world)
    providers = use_providers(world)
    device = use_devices(world)
    push_to(world, device)
    asyncio.run(use_sockets(world, device))
    deliver(world, providers)
    use_commands(world)
    look_around(world)
    backing.lock_out()
    if backing.passwords:
        wait_until(lambda: "redis_unavailable" in world.installation.events() or None)
    texts, canaries = world.collect(), world.canaries
    assert canaries.find(texts) == []
    # The same search finds a line that leaks.
    for name, value in list(canaries.values.items())[:20]:
        for leak in (value, f"Basic {base64.b64encode(f'user:{value}'.encode()).decode()}"):
            line = json.dumps({"event": "request", "authorization": leak})
            assert any(name in each for each in canaries.find({"log": texts["log"] + line})), name
    size = sum(map(len, texts.values()))
    with capsys.disabled():
        print(  # noqa: T201 - figures to be seen
            f"\n{len(canaries.values)} canaries through {len(canaries.paths)} paths:"
            f" none in {len(texts)} texts of {size:,} characters"
        )
    assert len(world.collector.spans) >= 100
    assert len(canaries.values) >= 700
    assert len(canaries.paths) >= 300


ADDRESSES = ("{0}://u:{1}@127.0.0.1:1/x", "{0}://u:{1}@127.0.0.1:port/x", "{0}:/u:{1}@x", "{1}")


def test_a_password_in_an_address_that_leads_nowhere_is_not_printed(tmp_path: Path) -> None:
    canaries = Canaries()

    def consult(number: int) -> str:
        form, folder = ADDRESSES[number], str(tmp_path / str(number))
        database = form.format("postgresql", canaries.make(f"password of PostgreSQL in {form}"))
        place = form.format("redis", canaries.make(f"password of Redis in {form}"))
        done = run_clarion("doctor", data=folder, tls_listen="off", database=database, redis=place)
        assert done.returncode in {1, 2}
        return done.stdout + done.stderr

    with ThreadPoolExecutor() as pool:
        texts = dict(zip(ADDRESSES, pool.map(consult, range(len(ADDRESSES))), strict=True))
    assert canaries.find(texts) == []
    assert all(texts.values())
