"""The ports of who may call: apps, keys, administrators, and the vault of their secrets."""

from __future__ import annotations

from typing import Protocol

from clarion.access.model import Administrator, ApiKey, App, Caller, ProviderKey
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page


class Apps(Protocol):
    """The registry of apps and of their provider keys."""

    async def create(self, app: App, provider_key: ProviderKey) -> None:
        """Add an app with its first provider key; `Conflict` if a bundle or key id is taken."""
        ...

    async def get(self, app_id: str) -> App | None:
        """Return the app, or None."""
        ...

    async def list(self) -> tuple[App, ...]:
        """Return the apps, oldest first, at most 1,000."""
        ...

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        """Return the provider key whatever its state, or None. Not scoped by app."""
        ...


class Keys(Protocol):
    """The API keys of the apps."""

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key.

        With `once`: if its idempotency key was used before for the same request and has not
        expired, nothing is added and the first answer is returned; for another request
        `IdempotencyKeyReused`. `Conflict` if the key's id is taken.
        """
        ...

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key whatever its state, or None. The one look-up that is not scoped by app."""
        ...

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        """Return the app's keys in the order of their ids, starting behind the id `after`."""
        ...

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        """Revoke a key and return it; None if the app has none such. Again changes nothing."""
        ...


class Administrators(Protocol):
    """The people who run Clarion."""

    async def create(self, administrator: Administrator) -> None:
        """Add an administrator; `Conflict` if the username is taken."""
        ...

    async def find(self, username: str) -> Administrator | None:
        """Return the administrator of that name, or None."""
        ...


class Authenticator(Protocol):
    """Identifies callers by the credential that they send."""

    async def identify(self, authorization: str | None) -> Caller:
        """Return the caller by the value of the `Authorization` header.

        `Unauthenticated` if there is none, or says what is wrong with it.
        """
        ...


class Vault(Protocol):
    """Encrypts secrets that must be read again. The key is not in the database."""

    def seal(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret for one place; it opens nowhere else."""
        ...

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt; `InternalError` if it was changed or belongs to another context."""
        ...
