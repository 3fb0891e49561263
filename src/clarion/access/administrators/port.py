"""The ports of administrators, their sessions, second factors, keys, and failed sign-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from clarion.access.administrators.model import (
    Administrator,
    AdminKey,
    AdminSession,
    RecoveryCode,
    SetupLink,
    TotpSecret,
    TrustedDevice,
)
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page

ADMINISTRATORS_LIMIT = 1_000
SESSIONS_LIMIT = 20
LIVE_ADMIN_KEYS_LIMIT = 100


class Administrators(Protocol):
    """The accounts."""

    async def create(
        self, administrator: Administrator, link: SetupLink, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add an administrator with a set-up link.

        With `once`, a repeated request gets the first response, as in `Keys.create`. `Conflict` if
        the username exists, or there are 1,000 administrators.
        """

    async def exist(self) -> bool:
        """Return whether there is any administrator."""

    async def get(self, administrator_id: str) -> Administrator | None:
        """Return the administrator, or None."""

    async def find(self, username: str) -> Administrator | None:
        """Return the administrator with this username, or with it in lower case; or None."""

    async def list(self, *, after: str | None, limit: int) -> Page[Administrator]:
        """Return administrators in the order of their ids, starting after the id `after`."""

    async def edit(
        self, administrator_id: str, edit: Callable[[Administrator], Administrator]
    ) -> Administrator | None:
        """Change roles, networks or whether the account is disabled; None if it does not exist.

        All its sessions and trusted devices end, in the same commit; if it is disabled, its keys
        are revoked. `Conflict` if no active administrator with the role admin for all apps would
        be left; then nothing changes.
        """

    async def delete(self, administrator_id: str) -> bool:
        """Delete the account and all that belongs to it; return whether it existed.

        `Conflict` as in `edit`.
        """

    async def set_password(
        self, administrator_id: str, password_hash: str, now: int, *, keep_session: str | None
    ) -> bool:
        """Store a new password, end all other sessions and trusted devices, in one commit.

        Return whether the administrator exists.
        """

    async def rehash_password(self, administrator_id: str, before: str, after: str) -> None:
        """Replace the hash of the same password, unless it has changed since it was read."""


class SetupLinks(Protocol):
    """Single-use links with which administrators set their first password."""

    async def put_first(self, link: SetupLink) -> bool:
        """Store the link for the first administrator, instead of an earlier one.

        Return False if there is an administrator: then nothing is stored.
        """

    async def is_first_stored(self) -> bool:
        """Return whether a link for the first administrator was ever stored, used or not."""

    async def reset(self, link: SetupLink, now: int, *, clears_totp: bool) -> bool:
        """Store a link for an administrator, instead of an earlier one, and take all else away.

        In one commit the password is removed, all sessions and trusted devices end and keys are
        revoked; if wanted, the second factor is removed, too. Return whether the administrator
        exists.
        """

    async def find(self, token_hash: bytes, now: int) -> SetupLink | None:
        """Return the link if it can be used, or None."""

    async def use_first(self, token_hash: bytes, administrator: Administrator, now: int) -> bool:
        """Use the link for the first administrator and add it; once, on whatever node.

        Return False if the link cannot be used, or there is an administrator already.
        """

    async def use(self, link: SetupLink, password_hash: str, now: int) -> bool:
        """Use a link and store the password; once, on whatever node."""


class AdminSessions(Protocol):
    """Sessions and trusted devices."""

    async def start(self, session: AdminSession, *, instead_of: bytes | None = None) -> None:
        """Store a session; the one with that hash of its secret ends in the same commit.

        An administrator has at most 20 with a second factor and 20 without: the oldest end.
        """

    async def find(self, secret_hash: bytes) -> AdminSession | None:
        """Return the session with this secret, expired or not, or None."""

    async def list(self, administrator_id: str) -> Sequence[AdminSession]:
        """Return the sessions of an administrator, newest first."""

    async def touch(self, session_id: str, now: int) -> None:
        """Record when a session was last used."""

    async def confirm(self, session_id: str, now: int) -> None:
        """Record when the password was last given in a session."""

    async def end(self, administrator_id: str, session_id: str) -> bool:
        """End a session; return whether the administrator had it."""

    async def end_all(self, administrator_id: str) -> int:
        """End all sessions and trusted devices; return how many sessions there were."""

    async def trust(self, device: TrustedDevice) -> None:
        """Store a trusted device."""

    async def find_device(self, token_hash: bytes, now: int) -> TrustedDevice | None:
        """Return the trusted device with this token, or None; also if it has expired."""


class SecondFactors(Protocol):
    """The secrets of authenticator apps, and recovery codes."""

    async def find_totp(self, administrator_id: str) -> TotpSecret | None:
        """Return the secret whose codes are asked for, or None."""

    async def find_new_totp(self, administrator_id: str) -> TotpSecret | None:
        """Return the secret that has not been confirmed yet, or None."""

    async def put_new_totp(self, secret: TotpSecret) -> None:
        """Store a new secret, instead of another that has not been confirmed."""

    async def use_step(self, administrator_id: str, step: int) -> bool:
        """Record that the code of a time step was given.

        Return False if that step or a later one was used before, on whatever node.
        """

    async def confirm_totp(
        self, secret: TotpSecret, step: int, codes: Sequence[RecoveryCode]
    ) -> bool:
        """Make the new secret the current one, with new recovery codes, in one commit.

        Trusted devices end. Return False if it is not the new secret any more.
        """

    async def delete_totp(self, administrator_id: str) -> None:
        """Delete the secrets, recovery codes and trusted devices."""

    async def replace_codes(self, administrator_id: str, codes: Sequence[RecoveryCode]) -> None:
        """Replace all recovery codes."""

    async def list_codes(self, administrator_id: str) -> tuple[RecoveryCode, ...]:
        """Return the recovery codes that are left."""

    async def use_code(self, code: RecoveryCode) -> bool:
        """Delete a recovery code; return False if it was used before, on whatever node."""


class AdminKeys(Protocol):
    """The API keys of administrators."""

    async def create(
        self, key: AdminKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key. With `once`, a repeated request gets the first response.

        `Conflict` if the administrator has `LIVE_ADMIN_KEYS_LIMIT` live ones.
        """

    async def find(self, key_id: str) -> AdminKey | None:
        """Return the key, in any state, or None."""

    async def list(self, administrator_id: str, *, after: str | None, limit: int) -> Page[AdminKey]:
        """Return the keys of an administrator in the order of their ids."""

    async def revoke(self, administrator_id: str, key_id: str, now: int) -> AdminKey | None:
        """Revoke a key and return it; None if the administrator does not have it. Idempotent."""

    async def touch(self, key_id: str, now: int) -> None:
        """Record when a key was last used."""


class Counter(NamedTuple):
    """What failed attempts are counted by, and how many lead to a lock."""

    key: str
    threshold: int


class Attempts(Protocol):
    """Failed attempts to sign in. They are counted in the store: nothing resets them."""

    async def take(self, counters: Sequence[Counter], now: int) -> int | None:
        """Count an attempt as failed by every counter, before it is made.

        If one of them is locked, nothing is counted, and the time until which it is locked is
        returned. Counting first means that attempts at the same time cannot pass together.
        """

    async def succeed(self, counters: Sequence[Counter]) -> None:
        """Take an attempt back that did not fail; the first counter starts at zero again."""

    async def take_back(self, counters: Sequence[Counter]) -> None:
        """Take an attempt back that could not be made, and the lock that it led to."""

    async def forget(self, prefix: str) -> None:
        """Delete the counters whose key starts with a text."""


class AdminStores(NamedTuple):
    """All of them."""

    accounts: Administrators
    links: SetupLinks
    sessions: AdminSessions
    factors: SecondFactors
    keys: AdminKeys
    attempts: Attempts
