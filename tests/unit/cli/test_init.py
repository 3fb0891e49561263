"""`clarion init`: everything is created once, and an interrupted run can be repeated."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from clarion.access.administrators.model import hash_token
from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.model import Role
from clarion.access.provisioning import create_app
from clarion.access.sql import Apps, Keys
from clarion.access.vault import Vault
from clarion.app.installation import Installation
from clarion.cli.first_run import read_first_run, urls_of
from clarion.cli.init import greeting, initialise, initialise_if_empty
from clarion.cli.saved_keys import find_foreign
from clarion.demo import DEMO_BUNDLE_ID
from clarion.errors import StartError
from clarion.settings import Settings, load
from clarion.system.data_directory import DataDirectory
from tests.factories import FixedClock, make_administrator, make_link
from tests.unit.conftest import MemoryEngine

if TYPE_CHECKING:
    from clarion.app.stores import Stores

SETTINGS = Settings()


@pytest.fixture
def stores(
    tmp_path: Path,
    apps: Apps,
    keys: Keys,
    admins: AdminStores,
    vault: Vault,
    clock: FixedClock,
) -> Stores:
    folder = DataDirectory(tmp_path)
    folder.ensure()
    # `initialise` uses only these stores.
    return SimpleNamespace(  # type: ignore[return-value]
        apps=apps,
        keys=keys,
        admins=admins,
        vault=vault,
        clock=clock,
        directory=folder,
        installation=Installation("here", "SQLite data/clarion.db"),
    )


@pytest.fixture
def other(stores: Stores, other_engine: MemoryEngine, vault: Vault, clock: FixedClock) -> Stores:
    """Another database, with the same data directory."""
    return SimpleNamespace(  # type: ignore[return-value]
        apps=Apps(other_engine),  # type: ignore[arg-type]
        keys=Keys(other_engine),  # type: ignore[arg-type]
        admins=make_admin_stores(other_engine),  # type: ignore[arg-type]
        vault=vault,
        clock=clock,
        directory=stores.directory,
        installation=Installation("there", "PostgreSQL clarion at db"),
    )


def begins(path: str, text: str) -> bool:
    return Path(path).read_text().startswith(text)


async def test_everything_is_created(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    assert first.app.bundle_id == DEMO_BUNDLE_ID
    assert begins(first.app.provider_key_path, "-----BEGIN PRIVATE KEY")
    assert begins(first.tls.ca_path, "-----BEGIN CERTIFICATE")
    assert first.admin.setup_url
    base, _, token = first.admin.setup_url.partition("#")
    assert base == "http://127.0.0.1:8080/admin/setup"
    assert await stores.admins.links.find(hash_token(token), stores.clock.now())


async def test_nothing_that_signs_in_an_administrator_is_in_the_file(stores: Stores) -> None:
    await initialise(stores, SETTINGS)
    saved = msgspec.json.decode(stores.directory.first_run.read_bytes())
    assert saved["admin"] == {"setup_url": None}


async def test_only_this_account_can_read_the_secrets(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    for path in (stores.directory.first_run, Path(first.app.provider_key_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_second_call_returns_the_same(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    again = await initialise(stores, SETTINGS)
    assert (again.app, again.tls, again.urls) == (first.app, first.tls, first.urls)
    assert len(await stores.apps.list()) == 1


async def test_only_the_last_link_can_be_used(stores: Stores) -> None:
    links = [(await initialise(stores, SETTINGS)).admin.setup_url for _ in range(2)]
    hashes = [hash_token(str(link).partition("#")[2]) for link in links]
    found = [await stores.admins.links.find(each, stores.clock.now()) for each in hashes]
    assert [each is not None for each in found] == [False, True]


async def test_there_is_no_link_while_there_is_an_administrator(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    token_hash = hash_token(str(first.admin.setup_url).partition("#")[2])
    ana = make_administrator("ana", role=Role.ADMIN)
    assert await stores.admins.links.use_first(token_hash, ana, stores.clock.now())
    again = await initialise(stores, SETTINGS)
    assert again.admin.setup_url is None
    assert str(first.admin.setup_url) in greeting(first, Path("data/first-run.json"))
    assert "first administrator" not in greeting(again, Path("data/first-run.json"))


async def test_the_urls_are_those_of_the_current_settings(stores: Stores) -> None:
    await initialise(stores, SETTINGS)
    settings = load({"listen": "127.0.0.1:9999", "tls-listen": "off"})
    assert (await initialise(stores, settings)).urls == urls_of(settings)


async def test_missing_secrets_are_reported(stores: Stores) -> None:
    await initialise(stores, SETTINGS)
    stores.directory.first_run.unlink()
    with pytest.raises(StartError, match="set up already"):
        await initialise(stores, SETTINGS)


async def test_a_run_interrupted_after_its_app_creates_another_app(stores: Stores) -> None:
    """The secrets of the first app were never saved, so nobody can use it."""
    await create_app(
        name="Demo",
        bundle_id=DEMO_BUNDLE_ID,
        apps=stores.apps,
        vault=stores.vault,
        clock=stores.clock,
    )
    first = await initialise(stores, SETTINGS)
    assert first.app.bundle_id.startswith(f"{DEMO_BUNDLE_ID}-")
    assert (await initialise(stores, SETTINGS)).app == first.app


async def test_another_database_is_set_up_and_the_keys_of_the_first_are_kept(
    stores: Stores, other: Stores
) -> None:
    first = await initialise(stores, SETTINGS)
    second = await initialise(other, SETTINGS)
    assert second.app.api_key != first.app.api_key
    assert read_first_run(stores.directory.first_run).app == second.app
    ((path, kept),) = find_foreign(other.directory, second)
    assert (kept.app, kept.database.name) == (first.app, "SQLite data/clarion.db")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (await initialise(stores, SETTINGS)).app == first.app
    assert read_first_run(stores.directory.first_run).app == first.app
    assert (await initialise(other, SETTINGS)).app == second.app


async def test_keys_of_another_database_are_named(stores: Stores, other: Stores) -> None:
    await initialise(stores, SETTINGS)
    await initialise(other, SETTINGS)
    await initialise(stores, SETTINGS)
    for path in stores.directory.list_other_first_runs():
        path.unlink()
    expected = (
        r"PostgreSQL clarion at db is set up already, but .*first-run.json has keys of SQLite"
    )
    with pytest.raises(StartError, match=expected):
        await initialise(other, SETTINGS)


async def test_only_an_empty_database_is_set_up_by_a_server(stores: Stores) -> None:
    first = await initialise_if_empty(stores, SETTINGS)
    assert first is not None
    assert await initialise_if_empty(stores, SETTINGS) is None
    stores.directory.first_run.unlink()
    assert await initialise_if_empty(stores, SETTINGS) is None
    assert len(await stores.apps.list()) == 1
    with pytest.raises(StartError, match="set up already"):
        await initialise(stores, SETTINGS)


async def test_a_database_with_an_app_is_not_set_up_by_a_server(stores: Stores) -> None:
    await create_app(
        name="Own",
        bundle_id="com.example.own",
        apps=stores.apps,
        vault=stores.vault,
        clock=stores.clock,
    )
    assert await initialise_if_empty(stores, SETTINGS) is None
    assert [each.name for each in await stores.apps.list()] == ["Own"]


async def test_a_database_of_an_earlier_release_is_set_up(stores: Stores) -> None:
    """It has an administrator, and never had a link."""
    await stores.admins.accounts.create(make_administrator("admin"), make_link("x"))
    with pytest.raises(StartError, match="set up already"):
        await initialise(stores, SETTINGS)


async def test_the_greeting_shows_what_to_try(stores: Stores) -> None:
    text = greeting(await initialise(stores, SETTINGS), Path("data/first-run.json"))
    assert "curl http://127.0.0.1:8080/health" in text
    assert "data/first-run.json" in text
    assert "api POST /v1/events" in text
    assert ".venv/bin/clarion demo" in text
    assert "ck_" not in text


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("clarion.example:80", "http://clarion.example:80"),
    ],
)
def test_a_url_can_be_called_from_this_machine(listen: str, url: str) -> None:
    assert urls_of(load({"listen": listen})).api == url
