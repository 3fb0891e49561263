"""The `Providers` port."""

import asyncio

import pytest

from clarion.access.vault import Vault
from clarion.catalog.model import Channel
from clarion.channels.model import Provider
from clarion.channels.port import Providers
from clarion.channels.sql import DAY_MS, SqlProviders
from clarion.errors import InternalError
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import NOW, new_app_id
from tests.replacing import replace

SWAP = statement(
    "swap_secrets",
    """UPDATE providers SET secrets = (SELECT p.secrets FROM providers p
    WHERE p.app_id = :app_id AND p.name = :other) WHERE app_id = :app_id AND name = :name""",
)
SELECT = statement("select_secrets", "SELECT secrets FROM providers WHERE app_id = :app_id")


def make(app_id: str, name: str = "main", **changes: object) -> Provider:
    provider = Provider(
        app_id=app_id,
        channel=Channel.EMAIL,
        name=name,
        kind="smtp",
        settings={"host": "mail.example.com", "port": 587, "ü": [None, True]},
        secrets={"password": "correct horse"},
        position=2,
        timeout_s=7,
        concurrency=3,
        daily_cap=100,
        is_sandbox=True,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(provider, **changes)


async def test_a_provider_comes_back_as_put(providers: Providers) -> None:
    provider = make(new_app_id())
    assert await providers.put(provider) == (provider, True)
    assert await providers.get(provider.app_id, Channel.EMAIL, "main") == provider


async def test_put_again_replaces_all_but_the_time_of_creation(providers: Providers) -> None:
    app_id = new_app_id()
    await providers.put(make(app_id))
    newer = make(app_id, secrets={"password": "new"}, created_at=NOW + 5, updated_at=NOW + 5)
    stored, is_new = await providers.put(newer)
    assert (stored, is_new) == (replace(newer, created_at=NOW), False)
    assert await providers.list(app_id) == (stored,)


async def test_they_are_listed_in_the_order_of_use(providers: Providers) -> None:
    app_id = new_app_id()
    for name, position in (("a", 2), ("b", 1), ("c", 1)):
        await providers.put(make(app_id, name, position=position))
    await providers.put(make(app_id, "z", channel=Channel.SMS, position=0))
    assert [each.name for each in await providers.list(app_id)] == ["b", "c", "a", "z"]


async def test_an_app_has_its_own(providers: Providers) -> None:
    app_id, other = new_app_id(), new_app_id()
    await providers.put(make(app_id))
    assert await providers.get(other, Channel.EMAIL, "main") is None
    assert await providers.list(other) == ()
    assert not await providers.delete(other, Channel.EMAIL, "main")
    assert not await providers.disable(other, Channel.EMAIL, "main", "no", NOW)
    assert await providers.delete(app_id, Channel.EMAIL, "main")
    assert not await providers.delete(app_id, Channel.EMAIL, "main")


async def test_one_is_disabled_once_with_its_reason(providers: Providers) -> None:
    app_id = new_app_id()
    await providers.put(make(app_id))
    assert await providers.disable(app_id, Channel.EMAIL, "main", "it is gone", NOW + 1)
    assert not await providers.disable(app_id, Channel.EMAIL, "main", "again", NOW + 2)
    (found,) = await providers.list(app_id)
    assert (found.is_active, found.disabled_reason) == (False, "it is gone")
    assert found.updated_at == NOW + 1
    await providers.put(make(app_id, updated_at=NOW + 3))
    (found,) = await providers.list(app_id)
    assert (found.is_active, found.disabled_reason) == (True, None)


async def test_the_daily_cap_is_exact_and_begins_anew_each_day(providers: Providers) -> None:
    app_id = new_app_id()

    async def take(now: int, name: str = "main") -> bool:
        return await providers.take_daily(app_id, Channel.SMS, name, cap=3, now=now)

    taken = await asyncio.gather(*(take(NOW) for _ in range(10)))
    assert sum(taken) == 3
    assert await take(NOW, "other")
    assert await take(NOW + DAY_MS)
    assert not await providers.take_daily(app_id, Channel.SMS, "main", cap=0, now=NOW + DAY_MS)


async def test_secrets_are_sealed_and_belong_to_their_row(
    providers: Providers, engine: Engine
) -> None:
    app_id = new_app_id()
    await providers.put(make(app_id))
    await providers.put(make(app_id, "other", secrets={"password": "another"}))
    rows = await engine.fetch(SELECT, app_id=app_id)
    assert not any(b"correct horse" in bytes(row[0]) for row in rows)
    swap = SWAP.step(app_id=app_id, name="main", other="other")
    await engine.write(Unit("", (swap,)))
    with pytest.raises(InternalError, match="decrypt"):
        await providers.get(app_id, Channel.EMAIL, "main")
    with pytest.raises(InternalError, match="decrypt"):
        await SqlProviders(engine, Vault(b"1" * 32)).get(app_id, Channel.EMAIL, "other")
