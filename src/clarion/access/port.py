"""The ports of apps, keys, authentication, and the vault for secrets."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from clarion.access.model import AdminCaller, AdminCredential, ApiKey, App, Caller, ProviderKey
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page


class Apps(Protocol):
    """Apps and their provider keys."""

    async def create(self, app: App, provider_key: ProviderKey) -> None:
        """Add an app with its first provider key; `Conflict` if a bundle id or key id exists."""

    async def get(self, app_id: str) -> App | None:
        """Return the app, or None."""

    async def list(self, after: str = "") -> tuple[App, ...]:
        """Return the apps, oldest first, at most 1,000, starting after the id `after`."""

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        """Return the provider key of any app, in any state, or None."""


class Keys(Protocol):
    """The API keys of the apps."""

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key.

        With `once`: if its idempotency key was used before for the same request and has not
        expired, nothing is added and the first response is returned; for a different request
        `IdempotencyKeyReused`. `Conflict` if a key with this id exists.
        """

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key of any app, in any state, or None."""

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        """Return the app's keys in the order of their ids, starting after the id `after`."""

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        """Revoke a key and return it; None if the app does not have it. Idempotent."""


class Authenticator(Protocol):
    """Identifies callers by the credential that they send."""

    async def identify(self, authorization: str | None) -> Caller:
        """Return the caller by the value of the `Authorization` header.

        `Unauthenticated`, with the reason, if the credential is missing or not valid.
        """


class AdminAuthenticator(Protocol):
    """Identifies administrators by a session or by an admin API key."""

    async def identify(self, credential: AdminCredential, *, is_use: bool = True) -> AdminCaller:
        """Return the administrator.

        Unless `is_use` is false, the time of the use is recorded: a session ends when it is not
        used.

        `Unauthenticated` if the session or key is not valid any more, `AddressNotAllowed` if it
        must not be used from this address, `InsecureTransport` if others could read it on the way,
        and `NotFound` if there is no such app, or no role for it.
        """


class Authenticators(NamedTuple):
    """Who identifies the callers of the API."""

    callers: Authenticator
    administrators: AdminAuthenticator


class Vault(Protocol):
    """Encrypts secrets that must be read again. The key is not in the database."""

    def seal(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret; it can be decrypted with the same context only."""

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt a secret; `InternalError` if it was changed or has another context."""
