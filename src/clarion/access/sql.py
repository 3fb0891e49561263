"""Apps and API keys in SQL."""

from __future__ import annotations

from clarion.access.model import ApiKey, App, ProviderKey, Scope
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.store.engine import Engine, explain_conflict
from clarion.store.records import Record
from clarion.store.statement import Unit, statement


def _join_scopes(scopes: frozenset[Scope]) -> str:
    return " ".join(sorted(scopes))


def _split_scopes(text: str) -> frozenset[Scope]:
    return frozenset(map(Scope, text.split()))


APPS = Record(App)
PROVIDER_KEYS = Record(ProviderKey)
KEYS = Record(ApiKey, codecs={"scopes": (_join_scopes, _split_scopes)})

INSERT_APP = statement(
    "insert_app", f"INSERT INTO apps ({APPS.columns}) VALUES ({APPS.parameters})"
)
SELECT_APP = statement("select_app", f"SELECT {APPS.columns} FROM apps WHERE id = :id")
SELECT_APPS = statement(
    "select_apps",
    f"SELECT {APPS.columns} FROM apps WHERE id > :after ORDER BY id LIMIT 1000",
)
INSERT_PROVIDER_KEY = statement(
    "insert_provider_key",
    f"""INSERT INTO provider_keys ({PROVIDER_KEYS.columns})
    VALUES ({PROVIDER_KEYS.parameters})""",
)
SELECT_PROVIDER_KEY = statement(
    "select_provider_key",
    f"SELECT {PROVIDER_KEYS.columns} FROM provider_keys WHERE key_id = :key_id",
)
INSERT_KEY = statement(
    "insert_api_key", f"INSERT INTO api_keys ({KEYS.columns}) VALUES ({KEYS.parameters})"
)
SELECT_KEY = statement("select_api_key", f"SELECT {KEYS.columns} FROM api_keys WHERE id = :id")
SELECT_KEYS = statement(
    "select_api_keys_of_app",
    f"""SELECT {KEYS.columns} FROM api_keys WHERE app_id = :app_id AND id > :after
    ORDER BY id LIMIT :limit""",
)
REVOKE_KEY = statement(
    "revoke_api_key",
    f"""UPDATE api_keys SET revoked_at = COALESCE(revoked_at, :now)
    WHERE id = :id AND app_id = :app_id RETURNING {KEYS.columns}""",
)


class SqlApps:
    """The `Apps` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, app: App, provider_key: ProviderKey) -> None:
        steps = (
            INSERT_APP.step(**APPS.values(app)),
            INSERT_PROVIDER_KEY.step(**PROVIDER_KEYS.values(provider_key)),
        )
        with explain_conflict("An app with this bundle id already exists."):
            await self._engine.write(Unit(app.id, steps))

    async def get(self, app_id: str) -> App | None:
        rows = await self._engine.fetch(SELECT_APP, id=app_id)
        return APPS.read(rows[0]) if rows else None

    async def list(self, after: str = "") -> tuple[App, ...]:
        return tuple(map(APPS.read, await self._engine.fetch(SELECT_APPS, after=after)))

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        rows = await self._engine.fetch(SELECT_PROVIDER_KEY, key_id=key_id)
        return PROVIDER_KEYS.read(rows[0]) if rows else None


class SqlKeys:
    """The `Keys` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        insert = INSERT_KEY.step(**KEYS.values(key))
        with explain_conflict("An API key with this id already exists."):
            done = await idempotency.write_once(self._engine, key.app_id, once, insert)
        return done if isinstance(done, StoredResponse) else None

    async def find(self, key_id: str) -> ApiKey | None:
        rows = await self._engine.fetch(SELECT_KEY, id=key_id)
        return KEYS.read(rows[0]) if rows else None

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        rows = await self._engine.fetch(
            SELECT_KEYS, app_id=app_id, after=after or "", limit=limit + 1
        )
        items = tuple(map(KEYS.read, rows[:limit]))
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        step = REVOKE_KEY.guard(id=key_id, app_id=app_id, now=now)
        done = await self._engine.write(Unit(app_id, (step,)))
        return KEYS.read(done[0][0]) if done else None
