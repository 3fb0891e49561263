"""From where administrators may sign in, for how long, and who needs a second factor."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from clarion.access.administrators.model import Administrator, AdminSession
from clarion.access.model import SignInStage, Visitor
from clarion.errors import AddressNotAllowed, InsecureTransport

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
# How long the second factor may take.
PENDING_MS = 10 * MINUTE_MS
TRUSTED_MS = 30 * DAY_MS
LINK_MS = DAY_MS
# What needs the password again is allowed for this long after it was given.
CONFIRMED_MS = 10 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInPolicy:
    """What the settings say. `mfa` is `admin`, `all` or `off`; no networks means all."""

    idle_ms: int = 30 * MINUTE_MS
    session_ms: int = 12 * HOUR_MS
    mfa: str = "admin"
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def check(self, visitor: Visitor) -> None:
        """Raise an error if no administrator may come this way."""
        if not visitor.is_secure:
            raise InsecureTransport
        if self.networks and not self._allows(visitor.address):
            raise AddressNotAllowed

    def _allows(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self.networks)

    def is_live(self, session: AdminSession, now: int) -> bool:
        """Whether a session has neither expired nor been left unused for too long."""
        return now < session.expires_at and now - session.last_seen_at < self.idle_ms

    def needs_mfa(self, administrator: Administrator) -> bool:
        """Whether an administrator must have a second factor."""
        return self.mfa == "all" or (self.mfa == "admin" and administrator.has_role_admin)

    def stage_of(
        self, administrator: Administrator, *, has_totp: bool, has_mfa: bool
    ) -> SignInStage:
        """Return the next step of a sign-in after the password."""
        if has_mfa:
            return SignInStage.SIGNED_IN
        if has_totp:
            return SignInStage.NEEDS_TOTP
        return (
            SignInStage.NEEDS_ENROLMENT if self.needs_mfa(administrator) else SignInStage.SIGNED_IN
        )
