"""Set-up links: how the first administrator is made, and others get their first password."""

from __future__ import annotations

from dataclasses import dataclass, field

from clarion.access.administrators.model import (
    FIRST,
    Administrator,
    SetupLink,
    hash_token,
    new_token,
)
from clarion.access.administrators.policy import LINK_MS
from clarion.access.administrators.sql.administrators import SetupLinks
from clarion.access.model import Role
from clarion.clock import Clock


@dataclass(frozen=True, slots=True)
class Invitation:
    """A set-up link with its URL, which cannot be shown again."""

    link: SetupLink
    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Invitations:
    """Makes set-up links. The token is in the fragment, which browsers do not send."""

    links: SetupLinks
    clock: Clock
    base_url: str

    def make(self, administrator_id: str) -> Invitation:
        """Return a new link, which is not stored yet."""
        token, now = new_token(), self.clock.now()
        link = SetupLink(
            id=administrator_id,
            token_hash=hash_token(token),
            created_at=now,
            expires_at=now + LINK_MS,
        )
        return Invitation(link, f"{self.base_url}/admin/setup#{token}")

    def propose(
        self,
        username: str,
        role: Role | None,
        app_roles: dict[str, Role],
        networks: tuple[str, ...],
    ) -> Administrator:
        """Return a new administrator without a password, who is not stored yet."""
        return Administrator(
            id=self.clock.new_id(),
            username=username,
            role=role,
            app_roles=app_roles,
            networks=networks,
            created_at=self.clock.now(),
        )

    async def invite_first(self) -> str | None:
        """Store a link for the first administrator, and return its URL.

        Return None if there is an administrator. Only the latest link can be used.
        """
        invitation = self.make(FIRST)
        return invitation.url if await self.links.put_first(invitation.link) else None

    async def reset(self, administrator_id: str, *, clears_totp: bool) -> Invitation | None:
        """Remove all that an administrator signs in with, and store a new link.

        Return None if there is no such administrator.
        """
        invitation = self.make(administrator_id)
        done = await self.links.reset(invitation.link, self.clock.now(), clears_totp=clears_totp)
        return invitation if done else None
