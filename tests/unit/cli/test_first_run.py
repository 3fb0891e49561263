"""The first run: made once, told the same way again, and never half."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from clarion.access.model import Administrator
from clarion.access.port import Administrators, Apps, Keys, Vault
from clarion.access.provisioning import create_app
from clarion.cli.first_run import DEMO_BUNDLE_ID, greet, initialise, urls_of
from clarion.data_directory import DataDirectory
from clarion.errors import StartError
from clarion.settings import Settings, load
from tests.factories import FixedClock

if TYPE_CHECKING:
    from clarion.house import House

SETTINGS = Settings()


@pytest.fixture
def house(
    tmp_path: Path,
    apps: Apps,
    keys: Keys,
    administrators: Administrators,
    vault: Vault,
    clock: FixedClock,
) -> House:
    folder = DataDirectory(tmp_path)
    folder.ensure()
    # The first run asks for no more of the house than this.
    return SimpleNamespace(  # type: ignore[return-value]
        apps=apps,
        keys=keys,
        administrators=administrators,
        vault=vault,
        clock=clock,
        folder=folder,
    )


def begins(path: str, text: str) -> bool:
    return Path(path).read_text().startswith(text)


async def test_everything_a_newcomer_needs_is_made(house: House) -> None:
    first = await initialise(house, SETTINGS)
    assert first.app.bundle_id == DEMO_BUNDLE_ID
    assert begins(first.app.provider_key_path, "-----BEGIN PRIVATE KEY")
    assert begins(first.tls.ca_path, "-----BEGIN CERTIFICATE")
    assert await house.administrators.find(first.admin.username)


async def test_secrets_are_for_this_account_alone(house: House) -> None:
    first = await initialise(house, SETTINGS)
    for path in (house.folder.first_run, Path(first.app.provider_key_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_second_time_the_same_is_told(house: House) -> None:
    first = await initialise(house, SETTINGS)
    assert await initialise(house, SETTINGS) == first
    assert len(await house.apps.list()) == 1


async def test_the_addresses_are_those_of_the_settings_of_now(house: House) -> None:
    await initialise(house, SETTINGS)
    settings = load({"listen": "127.0.0.1:9999", "tls-listen": "off"})
    assert (await initialise(house, settings)).urls == urls_of(settings)


async def test_when_its_secrets_are_gone_that_is_told(house: House) -> None:
    await initialise(house, SETTINGS)
    house.folder.first_run.unlink()
    with pytest.raises(StartError, match="set up already"):
        await initialise(house, SETTINGS)


async def test_a_first_run_that_was_interrupted_behind_its_app_makes_another(house: House) -> None:
    """The secrets of the first app are lost, so nobody can use it."""
    await create_app(
        name="Demo",
        bundle_id=DEMO_BUNDLE_ID,
        apps=house.apps,
        keys=house.keys,
        vault=house.vault,
        clock=house.clock,
    )
    first = await initialise(house, SETTINGS)
    assert first.app.bundle_id.startswith(f"{DEMO_BUNDLE_ID}-")
    assert await initialise(house, SETTINGS) == first


async def test_a_first_run_that_was_interrupted_before_its_administrator_makes_them(
    house: House,
) -> None:
    first = await initialise(house, SETTINGS)
    nobody = NobodyYet()
    house.administrators = nobody  # type: ignore[misc]
    assert await initialise(house, SETTINGS) == first
    assert nobody.made == [first.admin.username]


class NobodyYet:
    """The `Administrators` port as it was before the first one was made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def find(self, username: str) -> Administrator | None:
        del username
        return None

    async def create(self, administrator: Administrator) -> None:
        self.made.append(administrator.username)


async def test_the_greeting_says_what_to_try(house: House) -> None:
    text = greet(await initialise(house, SETTINGS), "data/first-run.json")
    assert "curl http://127.0.0.1:8080/health" in text
    assert "data/first-run.json" in text
    assert "http://127.0.0.1:8080/v1/events \\\n" in text


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("clarion.example:80", "http://clarion.example:80"),
    ],
)
def test_an_address_to_call_is_one_that_can_be_called(listen: str, url: str) -> None:
    assert urls_of(load({"listen": listen})).api == url
