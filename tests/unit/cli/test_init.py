"""`clarion init`: everything is created once, and an interrupted run can be repeated."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from clarion.access.model import Administrator
from clarion.access.port import Administrators, Apps, Keys, Vault
from clarion.access.provisioning import create_app
from clarion.cli.first_run import urls_of
from clarion.cli.init import greeting, initialise
from clarion.data_directory import DataDirectory
from clarion.demo import DEMO_BUNDLE_ID
from clarion.errors import StartError
from clarion.settings import Settings, load
from tests.factories import FixedClock

if TYPE_CHECKING:
    from clarion.stores import Stores

SETTINGS = Settings()


@pytest.fixture
def stores(
    tmp_path: Path,
    apps: Apps,
    keys: Keys,
    administrators: Administrators,
    vault: Vault,
    clock: FixedClock,
) -> Stores:
    folder = DataDirectory(tmp_path)
    folder.ensure()
    # `initialise` uses only these stores.
    return SimpleNamespace(  # type: ignore[return-value]
        apps=apps,
        keys=keys,
        administrators=administrators,
        vault=vault,
        clock=clock,
        directory=folder,
    )


def begins(path: str, text: str) -> bool:
    return Path(path).read_text().startswith(text)


async def test_everything_is_created(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    assert first.app.bundle_id == DEMO_BUNDLE_ID
    assert begins(first.app.provider_key_path, "-----BEGIN PRIVATE KEY")
    assert begins(first.tls.ca_path, "-----BEGIN CERTIFICATE")
    assert await stores.administrators.find(first.admin.username)


async def test_only_this_account_can_read_the_secrets(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    for path in (stores.directory.first_run, Path(first.app.provider_key_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_second_call_returns_the_same(stores: Stores) -> None:
    first = await initialise(stores, SETTINGS)
    assert await initialise(stores, SETTINGS) == first
    assert len(await stores.apps.list()) == 1


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
    assert await initialise(stores, SETTINGS) == first


async def test_a_run_interrupted_before_its_administrator_creates_one(
    stores: Stores,
) -> None:
    first = await initialise(stores, SETTINGS)
    administrators = NoAdministrators()
    stores.administrators = administrators  # type: ignore[assignment]
    assert await initialise(stores, SETTINGS) == first
    assert administrators.created == [first.admin.username]


class NoAdministrators:
    """The `Administrators` port of an installation without administrators."""

    def __init__(self) -> None:
        self.created: list[str] = []

    async def find(self, username: str) -> Administrator | None:
        del username
        return None

    async def create(self, administrator: Administrator) -> None:
        self.created.append(administrator.username)


async def test_the_greeting_shows_what_to_try(stores: Stores) -> None:
    text = greeting(await initialise(stores, SETTINGS), Path("data/first-run.json"))
    assert "curl http://127.0.0.1:8080/health" in text
    assert "data/first-run.json" in text
    assert "api POST /v1/events" in text
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
