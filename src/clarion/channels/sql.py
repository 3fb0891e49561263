"""Providers in SQL. Their secrets are sealed, each for its own row."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from clarion.access.port import Vault
from clarion.catalog.model import Channel
from clarion.channels.model import Provider, secrets_context
from clarion.channels.tables import PROVIDERS
from clarion.events.sql.claims import CLAIM_LIMIT
from clarion.store.engine import Engine
from clarion.store.statement import Row, Unit, statement

DAY_MS = 24 * 3600 * 1000
_KEY = "app_id = :app_id AND channel = :channel AND name = :name"
_SELECT = f"SELECT {PROVIDERS.columns} FROM providers"

PUT = statement(
    "put_provider",
    f"""INSERT INTO providers ({PROVIDERS.columns}) VALUES ({PROVIDERS.parameters})
    ON CONFLICT (app_id, channel, name) DO UPDATE SET
    {PROVIDERS.assign_others("app_id", "channel", "name", "created_at")}
    RETURNING created_at""",
)
GET = statement("get_provider", f"{_SELECT} WHERE {_KEY}")
LIST = statement(
    "list_providers",
    f"{_SELECT} WHERE app_id = :app_id ORDER BY channel, position, name LIMIT 1000",
)
DELETE = statement("delete_provider", f"DELETE FROM providers WHERE {_KEY} RETURNING name")
DISABLE = statement(
    "disable_provider",
    f"""UPDATE providers SET is_active = 0, disabled_reason = :reason, updated_at = :now
    WHERE {_KEY} AND is_active = 1 RETURNING name""",
)
SELECT_DISABLED = statement(
    "select_disabled_providers_for_doctor",
    """SELECT channel, name, disabled_reason FROM providers WHERE disabled_reason IS NOT NULL
    ORDER BY channel, name LIMIT 5""",
)
SELECT_ACTIVE = statement(
    "select_providers_for_doctor",
    f"""SELECT {PROVIDERS.columns} FROM providers WHERE is_active = 1
    ORDER BY channel, name, app_id LIMIT :limit""",
)
_encode = msgspec.json.Encoder().encode


class SqlProviders:
    """The `Providers` port."""

    def __init__(self, engine: Engine, vault: Vault) -> None:
        self._engine = engine
        self._vault = vault

    async def put(self, provider: Provider) -> tuple[Provider, bool]:
        sealed = self._vault.seal(_encode(provider.secrets), _context_of(provider))
        put = PUT.guard(**PROVIDERS.values(provider) | {"secrets": sealed})
        rows = await self._engine.write(Unit(provider.name, (put,), provider.app_id))
        created_at = int(rows[0][0][0]) if rows else provider.created_at
        is_new = created_at == provider.created_at
        return replace(provider, created_at=created_at), is_new

    async def get(self, app_id: str, channel: Channel, name: str) -> Provider | None:
        rows = await self._engine.fetch(GET, app_id=app_id, channel=channel.value, name=name)
        return self._read(rows[0]) if rows else None

    async def list(self, app_id: str) -> tuple[Provider, ...]:
        return tuple(map(self._read, await self._engine.fetch(LIST, app_id=app_id)))

    async def delete(self, app_id: str, channel: Channel, name: str) -> bool:
        step = DELETE.guard(app_id=app_id, channel=channel.value, name=name)
        return await self._engine.write(Unit(name, (step,), app_id)) is not None

    async def disable(
        self, app_id: str, channel: Channel, name: str, reason: str, now: int
    ) -> bool:
        step = DISABLE.guard(
            app_id=app_id, channel=channel.value, name=name, reason=reason, now=now
        )
        return await self._engine.write(Unit(name, (step,), app_id)) is not None

    async def take_daily(
        self, app_id: str, channel: Channel, name: str, *, cap: int, now: int
    ) -> bool:
        if cap < 1:
            return False
        day = now // DAY_MS
        step = CLAIM_LIMIT.guard(
            app_id=app_id,
            id=f"provider\n{channel}\n{name}\n{day}",
            limit=cap,
            expires_at=(day + 2) * DAY_MS,
        )
        return await self._engine.write(Unit(name, (step,), app_id)) is not None

    def _read(self, row: Row) -> Provider:
        return read_provider(row, self._vault)


def read_provider(row: Row, vault: Vault) -> Provider:
    """Return a provider with its secrets, from the columns of `PROVIDERS`."""
    stored = PROVIDERS.read(row)
    opened = vault.open(stored.secrets, _context_of(stored))  # type: ignore[arg-type]
    return replace(stored, secrets=msgspec.json.decode(opened, type=dict[str, str]))


def _context_of(provider: Provider) -> str:
    return secrets_context(provider.app_id, provider.channel, provider.name)
