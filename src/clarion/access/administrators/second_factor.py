"""The second factor: enrolling an authenticator app, and checking its codes."""

from __future__ import annotations

from dataclasses import dataclass, field

from clarion.access.administrators import recovery_codes, totp
from clarion.access.administrators.model import TotpSecret, TotpState, totp_context
from clarion.access.administrators.passwords import HashingThreads
from clarion.access.administrators.policy import PENDING_MS
from clarion.access.administrators.sql.second_factors import SecondFactors
from clarion.access.model import AdminCaller
from clarion.access.vault import Vault
from clarion.clock import Clock
from clarion.errors import Conflict, FieldFault, InvalidFields
from clarion.telemetry.logs import get_logger

ISSUER = "Clarion"


@dataclass(frozen=True, slots=True)
class CodeChecker:
    """Checks codes, and accepts each once."""

    factors: SecondFactors
    hashing: HashingThreads
    vault: Vault

    async def use(self, administrator_id: str, code: str, now: int) -> bool:
        """Use up a TOTP code or a recovery code; return whether it was right and not used."""
        if code.replace(" ", "").isdecimal():
            return await self._use_totp(administrator_id, code, now)
        stored = await self.factors.list_codes(administrator_id)
        found = await self.hashing.run(recovery_codes.find_code, code, stored)
        return found is not None and await self.factors.use_code(found)

    async def _use_totp(self, administrator_id: str, code: str, now: int) -> bool:
        stored = await self.factors.find_totp(administrator_id)
        if stored is None:
            return False
        secret = self.vault.open(stored.secret, totp_context(administrator_id))
        step = totp.find_step(secret, code, now, stored.last_step)
        return step is not None and await self.factors.use_step(administrator_id, step)


@dataclass(frozen=True, slots=True)
class NewTotp:
    """A secret to enter into an authenticator app, as text and as a URI for a QR code."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Sets up, replaces and removes the second factor of an administrator."""

    factors: SecondFactors
    hashing: HashingThreads
    vault: Vault
    clock: Clock

    async def begin(self, caller: AdminCaller) -> NewTotp:
        """Make a secret. An older one stays in use until a code of the new one was given."""
        secret, who = totp.new_secret(), caller.administrator_id
        stored = TotpSecret(
            administrator_id=who,
            state=TotpState.NEW,
            secret=self.vault.seal(secret, totp_context(who)),
            last_step=0,
            created_at=self.clock.now(),
        )
        await self.factors.put_new_totp(stored)
        return NewTotp(totp.encode_secret(secret), totp.uri_of(secret, caller.username, ISSUER))

    async def confirm(self, caller: AdminCaller, code: str) -> list[str]:
        """Use the new secret from now on, and return new recovery codes."""
        who, now = caller.administrator_id, self.clock.now()
        stored = await self.factors.find_new_totp(who)
        if stored is None or now - stored.created_at > PENDING_MS:
            raise Conflict("There is no new secret to confirm. POST /v1/admin/totp creates one.")
        secret = self.vault.open(stored.secret, totp_context(who))
        step = totp.find_step(secret, code, now, stored.last_step)
        if step is None:
            reason = "is not the code of the new secret; check the clock of the device"
            raise InvalidFields(FieldFault("code", reason))
        codes = recovery_codes.new_codes()
        hashed = await self.hashing.run(recovery_codes.hash_codes, who, codes)
        if not await self.factors.confirm_totp(stored, step, hashed):
            raise Conflict("Another request has changed the second factor. Start again.")
        get_logger().info("second_factor_changed", administrator_id=who)
        return codes

    async def remove(self, caller: AdminCaller) -> None:
        await self.factors.delete_totp(caller.administrator_id)
        get_logger().info("second_factor_removed", administrator_id=caller.administrator_id)

    async def renew_codes(self, caller: AdminCaller) -> list[str]:
        """Replace all recovery codes, and return the new ones."""
        who, codes = caller.administrator_id, recovery_codes.new_codes()
        if await self.factors.find_totp(who) is None:
            raise Conflict("There is no second factor. POST /v1/admin/totp sets one up.")
        hashed = await self.hashing.run(recovery_codes.hash_codes, who, codes)
        await self.factors.replace_codes(who, hashed)
        return codes
