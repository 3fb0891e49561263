"""Sessions of administrators and trusted devices in SQL."""

from __future__ import annotations

from clarion.access.administrators.model import SESSIONS_LIMIT, AdminSession, TrustedDevice
from clarion.access.tables import ADMIN_SESSIONS, TRUSTED_DEVICES
from clarion.store.engine import Engine
from clarion.store.statement import Step, Unit, statement

DEVICES_LIMIT = 20

INSERT = statement("insert_admin_session", ADMIN_SESSIONS.insert)
# Sessions without a second factor do not end those with one: with the password alone, anyone can
# start any number of them.
DELETE_OLDEST = statement(
    "delete_oldest_admin_sessions",
    """DELETE FROM admin_sessions WHERE administrator_id = :administrator_id AND id IN (
      SELECT id FROM admin_sessions WHERE administrator_id = :administrator_id
      AND CASE WHEN mfa_at IS NULL THEN 0 ELSE 1 END = :has_mfa
      ORDER BY id DESC LIMIT 1000 OFFSET :keep)""",
)
FIND = statement(
    "find_admin_session",
    f"SELECT {ADMIN_SESSIONS.columns} FROM admin_sessions WHERE secret_hash = :secret_hash",
)
LIST = statement(
    "list_admin_sessions",
    f"""SELECT {ADMIN_SESSIONS.columns} FROM admin_sessions
    WHERE administrator_id = :administrator_id ORDER BY id DESC LIMIT 1000""",
)
TOUCH = statement(
    "touch_admin_session", "UPDATE admin_sessions SET last_seen_at = :now WHERE id = :id"
)
CONFIRM = statement(
    "confirm_admin_session", "UPDATE admin_sessions SET confirmed_at = :now WHERE id = :id"
)
DELETE = statement(
    "delete_admin_session",
    """DELETE FROM admin_sessions WHERE administrator_id = :administrator_id AND id = :id
    RETURNING id""",
)
REPLACE = statement(
    "replace_admin_session", "DELETE FROM admin_sessions WHERE secret_hash = :secret_hash"
)
DELETE_SESSIONS = statement(
    "delete_admin_sessions",
    """DELETE FROM admin_sessions WHERE administrator_id = :administrator_id AND id <> :kept
    RETURNING id""",
)
INSERT_DEVICE = statement("insert_trusted_device", TRUSTED_DEVICES.insert)
DELETE_OLDEST_DEVICES = statement(
    "delete_oldest_trusted_devices",
    """DELETE FROM trusted_devices WHERE administrator_id = :administrator_id AND token_hash IN (
      SELECT token_hash FROM trusted_devices WHERE administrator_id = :administrator_id
      ORDER BY created_at DESC LIMIT 1000 OFFSET :keep)""",
)
FIND_DEVICE = statement(
    "find_trusted_device",
    f"""SELECT {TRUSTED_DEVICES.columns} FROM trusted_devices
    WHERE token_hash = :token_hash AND expires_at > :now""",
)
DELETE_DEVICES = statement(
    "delete_trusted_devices",
    "DELETE FROM trusted_devices WHERE administrator_id = :administrator_id",
)


class AdminSessions:
    """Sessions and trusted devices."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, session: AdminSession, *, instead_of: bytes | None = None) -> None:
        """Store a session; the one with that hash of its secret ends in the same commit.

        An administrator has at most 20 with a second factor and 20 without: the oldest end.
        """
        who = session.administrator_id
        steps = (
            REPLACE.step(secret_hash=instead_of or b""),
            INSERT.step(**ADMIN_SESSIONS.values(session)),
            DELETE_OLDEST.step(
                administrator_id=who, keep=SESSIONS_LIMIT, has_mfa=int(session.mfa_at is not None)
            ),
        )
        await self._engine.write(Unit(who, steps))

    async def find(self, secret_hash: bytes) -> AdminSession | None:
        """Return the session with this secret, expired or not, or None."""
        return ADMIN_SESSIONS.first(await self._engine.fetch(FIND, secret_hash=secret_hash))

    async def list(self, administrator_id: str) -> tuple[AdminSession, ...]:
        """Return the sessions of an administrator, newest first."""
        rows = await self._engine.fetch(LIST, administrator_id=administrator_id)
        return tuple(map(ADMIN_SESSIONS.read, rows))

    async def touch(self, session_id: str, now: int) -> None:
        """Record when a session was last used."""
        await self._engine.write(Unit(session_id, (TOUCH.step(id=session_id, now=now),)))

    async def confirm(self, session_id: str, now: int) -> None:
        """Record when the password was last given in a session."""
        await self._engine.write(Unit(session_id, (CONFIRM.step(id=session_id, now=now),)))

    async def end(self, administrator_id: str, session_id: str) -> bool:
        """End a session; return whether it belonged to the administrator."""
        guard = DELETE.guard(administrator_id=administrator_id, id=session_id)
        return await self._engine.write(Unit(administrator_id, (guard,))) is not None

    async def end_all(self, administrator_id: str) -> int:
        """End all sessions and trusted devices; return how many sessions there were."""
        done = await self._engine.write(Unit(administrator_id, end_sign_ins(administrator_id)))
        return len(done[0]) if done else 0

    async def trust(self, device: TrustedDevice) -> None:
        """Store a trusted device."""
        who = device.administrator_id
        steps = (
            INSERT_DEVICE.step(**TRUSTED_DEVICES.values(device)),
            DELETE_OLDEST_DEVICES.step(administrator_id=who, keep=DEVICES_LIMIT),
        )
        await self._engine.write(Unit(who, steps))

    async def find_device(self, token_hash: bytes, now: int) -> TrustedDevice | None:
        """Return the trusted device with this token, or None; also if it has expired."""
        rows = await self._engine.fetch(FIND_DEVICE, token_hash=token_hash, now=now)
        return TRUSTED_DEVICES.first(rows)


def end_sign_ins(administrator_id: str, *, kept: str = "") -> tuple[Step, Step]:
    """Return the steps that end all sessions but one, and all trusted devices."""
    return (
        DELETE_SESSIONS.step(administrator_id=administrator_id, kept=kept),
        DELETE_DEVICES.step(administrator_id=administrator_id),
    )
