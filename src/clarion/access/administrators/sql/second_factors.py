"""Secrets of authenticator apps and recovery codes in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clarion.access.administrators.model import RecoveryCode, TotpSecret, TotpState
from clarion.access.administrators.sql.sessions import DELETE_DEVICES
from clarion.access.tables import RECOVERY_CODES, TOTP_SECRETS
from clarion.store.engine import Engine
from clarion.store.statement import Step, Unit, statement

SELECT = statement(
    "select_totp_secret",
    f"""SELECT {TOTP_SECRETS.columns} FROM totp_secrets
    WHERE administrator_id = :administrator_id AND state = :state""",
)
PUT = statement(
    "put_totp_secret",
    f"""{TOTP_SECRETS.insert}
    ON CONFLICT (administrator_id, state) DO UPDATE SET
    {TOTP_SECRETS.assign_others("administrator_id", "state")}""",
)
USE_STEP = statement(
    "use_totp_step",
    """UPDATE totp_secrets SET last_step = :step
    WHERE administrator_id = :administrator_id AND state = 'current' AND last_step < :step
    RETURNING last_step""",
)
TAKE_NEW = statement(
    "take_new_totp_secret",
    """DELETE FROM totp_secrets WHERE administrator_id = :administrator_id AND state = 'new'
    AND created_at = :created_at RETURNING administrator_id""",
)
DELETE_TOTP = statement(
    "delete_totp_secrets",
    "DELETE FROM totp_secrets WHERE administrator_id = :administrator_id",
)
INSERT_CODE = statement("insert_recovery_code", RECOVERY_CODES.insert)
LIST_CODES = statement(
    "list_recovery_codes",
    f"""SELECT {RECOVERY_CODES.columns} FROM recovery_codes
    WHERE administrator_id = :administrator_id LIMIT 100""",
)
USE_CODE = statement(
    "use_recovery_code",
    """DELETE FROM recovery_codes
    WHERE administrator_id = :administrator_id AND code_hash = :code_hash
    RETURNING administrator_id""",
)
DELETE_CODES = statement(
    "delete_recovery_codes",
    "DELETE FROM recovery_codes WHERE administrator_id = :administrator_id",
)


class SecondFactors:
    """The secrets of authenticator apps, and recovery codes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def find_totp(self, administrator_id: str) -> TotpSecret | None:
        """Return the secret whose codes are asked for, or None."""
        return await self._find(administrator_id, TotpState.CURRENT)

    async def find_new_totp(self, administrator_id: str) -> TotpSecret | None:
        """Return the secret that has not been confirmed yet, or None."""
        return await self._find(administrator_id, TotpState.NEW)

    async def _find(self, administrator_id: str, state: TotpState) -> TotpSecret | None:
        rows = await self._engine.fetch(
            SELECT, administrator_id=administrator_id, state=state.value
        )
        return TOTP_SECRETS.first(rows)

    async def put_new_totp(self, secret: TotpSecret) -> None:
        """Store a new secret, instead of another that has not been confirmed."""
        step = PUT.step(**TOTP_SECRETS.values(replace(secret, state=TotpState.NEW)))
        await self._engine.write(Unit(secret.administrator_id, (step,)))

    async def use_step(self, administrator_id: str, step: int) -> bool:
        """Record that the code of a time step was given.

        Return False if that step or a later one was used before, on any node.
        """
        guard = USE_STEP.guard(administrator_id=administrator_id, step=step)
        return await self._engine.write(Unit(administrator_id, (guard,))) is not None

    async def confirm_totp(
        self, secret: TotpSecret, step: int, codes: Sequence[RecoveryCode]
    ) -> bool:
        """Make the new secret the current one, with new recovery codes, in one commit.

        Trusted devices end. Return False if it is no longer the new secret.
        """
        who = secret.administrator_id
        current = replace(secret, state=TotpState.CURRENT, last_step=step)
        steps = (
            TAKE_NEW.guard(administrator_id=who, created_at=secret.created_at),
            PUT.step(**TOTP_SECRETS.values(current)),
            *_replace_codes(who, codes),
            DELETE_DEVICES.step(administrator_id=who),
        )
        return await self._engine.write(Unit(who, steps)) is not None

    async def delete_totp(self, administrator_id: str) -> None:
        """Delete the secrets, recovery codes and trusted devices."""
        steps = (
            *delete_factors(administrator_id),
            DELETE_DEVICES.step(administrator_id=administrator_id),
        )
        await self._engine.write(Unit(administrator_id, steps))

    async def replace_codes(self, administrator_id: str, codes: Sequence[RecoveryCode]) -> None:
        """Replace all recovery codes."""
        steps = _replace_codes(administrator_id, codes)
        await self._engine.write(Unit(administrator_id, steps))

    async def list_codes(self, administrator_id: str) -> tuple[RecoveryCode, ...]:
        """Return the recovery codes that are left."""
        rows = await self._engine.fetch(LIST_CODES, administrator_id=administrator_id)
        return tuple(map(RECOVERY_CODES.read, rows))

    async def use_code(self, code: RecoveryCode) -> bool:
        """Delete a recovery code; return False if it was used before, on any node."""
        guard = USE_CODE.guard(administrator_id=code.administrator_id, code_hash=code.code_hash)
        return await self._engine.write(Unit(code.administrator_id, (guard,))) is not None


def delete_factors(administrator_id: str) -> tuple[Step, Step]:
    """Return the steps that delete the secrets and recovery codes."""
    return (
        DELETE_TOTP.step(administrator_id=administrator_id),
        DELETE_CODES.step(administrator_id=administrator_id),
    )


def _replace_codes(administrator_id: str, codes: Sequence[RecoveryCode]) -> tuple[Step, ...]:
    return (
        DELETE_CODES.step(administrator_id=administrator_id),
        INSERT_CODE.many([RECOVERY_CODES.bind(code) for code in codes]),
    )
