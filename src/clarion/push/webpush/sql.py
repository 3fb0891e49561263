"""Web Push endpoints in SQL."""

from __future__ import annotations

from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page
from clarion.push.tables import PUSH_ENDPOINTS
from clarion.push.webpush.model import PushEndpoint, StoredEndpoint
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

# UnifiedPush creates one for each app on a phone that gets messages.
ENDPOINTS_LIMIT = 100

# The endpoints of the users who had the device before.
DELETE_OF_OTHERS = statement(
    "delete_push_endpoints_of_others",
    "DELETE FROM push_endpoints WHERE device_id = :device_id AND user_id <> :user_id",
)
# Counts and writes in one statement. Two nodes at once may each add the last one of a device.
ADD = statement(
    "add_push_endpoint",
    f"""INSERT INTO push_endpoints ({PUSH_ENDPOINTS.columns})
    SELECT :id, :app_id, :device_id, :user_id, :capability_hash, :vapid_key, :label,
    CAST(:created_at AS BIGINT)
    WHERE (SELECT COUNT(*) FROM push_endpoints WHERE device_id = :device_id) < {ENDPOINTS_LIMIT}
    RETURNING id""",
)
FIND = statement(
    "find_push_endpoint",
    f"""SELECT {", ".join(f"push_endpoints.{name}" for name in PUSH_ENDPOINTS.names)},
    devices.token_hash FROM push_endpoints LEFT JOIN devices
    ON devices.id = push_endpoints.device_id
    WHERE push_endpoints.capability_hash = :capability_hash""",
)
LIST = statement(
    "list_push_endpoints",
    f"""SELECT {PUSH_ENDPOINTS.columns} FROM push_endpoints WHERE device_id = :device_id
    AND app_id = :app_id AND user_id = :user_id AND id > :after ORDER BY id LIMIT :limit""",
)
DELETE = statement(
    "delete_push_endpoint",
    f"""DELETE FROM push_endpoints WHERE device_id = :device_id AND id = :id AND app_id = :app_id
    RETURNING {PUSH_ENDPOINTS.columns}""",
)


class PushEndpoints:
    """The Web Push endpoints of devices. They are deleted with their device."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def add(
        self, endpoint: PushEndpoint, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add an endpoint, and delete those that the device has of other users.

        False if the device has 100 endpoints. `once` as in `Keys.create`.
        """
        clear = DELETE_OF_OTHERS.step(device_id=endpoint.device_id, user_id=endpoint.user_id)
        add = ADD.guard(**PUSH_ENDPOINTS.values(endpoint))
        done = await idempotency.write_once(
            self._engine, endpoint.device_id, once, clear, add, owner=endpoint.app_id
        )
        return done if isinstance(done, StoredResponse) else done is not None

    async def find(self, capability_hash: bytes) -> StoredEndpoint | None:
        """Return the endpoint of any app with this hash, or None."""
        rows = await self._engine.fetch(FIND, capability_hash=capability_hash)
        return StoredEndpoint(PUSH_ENDPOINTS.read(rows[0]), rows[0][-1]) if rows else None

    async def list(
        self, app_id: str, device_id: str, user_id: str, *, after: str | None, limit: int
    ) -> Page[PushEndpoint]:
        """Return the endpoints that a user has on a device, oldest first."""
        rows = await self._engine.fetch(
            LIST,
            app_id=app_id,
            device_id=device_id,
            user_id=user_id,
            after=after or "",
            limit=limit + 1,
        )
        items = tuple(map(PUSH_ENDPOINTS.read, rows[:limit]))
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def delete(self, app_id: str, device_id: str, endpoint_id: str) -> PushEndpoint | None:
        """Delete an endpoint and return it; None if the device has no such endpoint."""
        step = DELETE.guard(device_id=device_id, id=endpoint_id, app_id=app_id)
        done = await self._engine.write(Unit(device_id, (step,), app_id))
        return PUSH_ENDPOINTS.read(done[0][0]) if done else None
