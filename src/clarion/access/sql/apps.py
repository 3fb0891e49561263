"""Apps and their provider keys in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.access.model import App, ProviderKey, UserTokenAlgorithm
from clarion.store.statement import Unit, statement

if TYPE_CHECKING:
    from clarion.store.engine import Engine

_COLUMNS = "id, name, bundle_id, team_id, user_token_algorithm, user_token_key, created_at"
INSERT_APP = statement(
    "insert_app",
    f"""INSERT INTO apps ({_COLUMNS})
    VALUES (:id, :name, :bundle_id, :team_id, :user_token_algorithm, :user_token_key, :created_at)
    """,
)
INSERT_PROVIDER_KEY = statement(
    "insert_provider_key",
    """INSERT INTO provider_keys (key_id, app_id, team_id, public_key, created_at, revoked_at)
    VALUES (:key_id, :app_id, :team_id, :public_key, :created_at, :revoked_at)""",
)
SELECT_PROVIDER_KEY = statement(
    "select_provider_key",
    """SELECT key_id, app_id, team_id, public_key, created_at, revoked_at FROM provider_keys
    WHERE key_id = :key_id""",
)
SELECT_APP = statement("select_app", f"SELECT {_COLUMNS} FROM apps WHERE id = :id")
SELECT_APPS = statement("select_apps", f"SELECT {_COLUMNS} FROM apps ORDER BY id LIMIT 1000")


class SqlApps:
    """The `Apps` port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def create(self, app: App, provider_key: ProviderKey) -> None:
        """Add an app with its first provider key."""
        insert_app = INSERT_APP.step(
            id=app.id,
            name=app.name,
            bundle_id=app.bundle_id,
            team_id=app.team_id,
            user_token_algorithm=app.user_token_algorithm.value,
            user_token_key=app.user_token_key,
            created_at=app.created_at,
        )
        insert_key = INSERT_PROVIDER_KEY.step(
            key_id=provider_key.key_id,
            app_id=provider_key.app_id,
            team_id=provider_key.team_id,
            public_key=provider_key.public_key,
            created_at=provider_key.created_at,
            revoked_at=provider_key.revoked_at,
        )
        await self._engine.write(Unit(app.id, (insert_app, insert_key)))

    async def get(self, app_id: str) -> App | None:
        """Return the app, or None."""
        rows = await self._engine.fetch(SELECT_APP, id=app_id)
        return _app(*rows[0]) if rows else None

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        """Return the provider key whatever its state, or None."""
        rows = await self._engine.fetch(SELECT_PROVIDER_KEY, key_id=key_id)
        if not rows:
            return None
        key_id, app_id, team_id, public_key, created_at, revoked_at = rows[0]
        return ProviderKey(
            key_id=key_id,
            app_id=app_id,
            team_id=team_id,
            public_key=public_key,
            created_at=created_at,
            revoked_at=revoked_at,
        )

    async def list(self) -> tuple[App, ...]:
        """Return the apps, oldest first."""
        return tuple(_app(*row) for row in await self._engine.fetch(SELECT_APPS))


def _app(
    app_id: str,
    name: str,
    bundle_id: str,
    team_id: str,
    algorithm: str,
    key: bytes,
    created_at: int,
) -> App:
    return App(
        id=app_id,
        name=name,
        bundle_id=bundle_id,
        team_id=team_id,
        user_token_algorithm=UserTokenAlgorithm(algorithm),
        user_token_key=key,
        created_at=created_at,
    )
