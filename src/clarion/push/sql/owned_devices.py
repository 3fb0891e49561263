"""The devices of a user, now and before, in SQL."""

from __future__ import annotations

from clarion.push.model import UNTIL_NOW, OwnedDevice
from clarion.store.engine import Engine
from clarion.store.statement import statement

_PAGE = 500

SELECT_DEVICES = statement(
    "select_devices_of_subject",
    f"""SELECT d.id, d.token_hash, COALESCE((SELECT MAX(f.until) FROM former_device_users f
      WHERE f.device_id = d.id), 0), {UNTIL_NOW}
    FROM devices d WHERE d.app_id = :app_id AND d.user_id = :user_id AND d.id > :after
    ORDER BY d.id LIMIT {_PAGE}""",
)
SELECT_FORMER = statement(
    "select_former_devices_of_subject",
    f"""SELECT device_id, token_hash, since, until FROM former_device_users
    WHERE app_id = :app_id AND user_id = :user_id AND (device_id, until) > (:after, :until)
    ORDER BY device_id, until LIMIT {_PAGE}""",
)


async def find_devices(engine: Engine, app_id: str, user_id: str) -> list[OwnedDevice]:
    """Return the devices of a user, and those that were the user's."""
    owner = {"app_id": app_id, "user_id": user_id}
    found: list[OwnedDevice] = []
    after = ""
    while rows := await engine.fetch(SELECT_DEVICES, **owner, after=after):
        found += (OwnedDevice(*row) for row in rows)
        after = rows[-1][0]
    after, until = "", 0
    while rows := await engine.fetch(SELECT_FORMER, **owner, after=after, until=until):
        found += (OwnedDevice(*row) for row in rows)
        after, _, _, until = rows[-1]
    return found
