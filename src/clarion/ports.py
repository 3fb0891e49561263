"""The ports of the house. Their docstrings are the contract that the contract suite checks.

Times are integer milliseconds UTC and always given by the caller. Every method of a store port is
scoped by app; rows of another app are as if they were not there. A method that changes something
returns after the change is durable. Any method may raise `StoreUnavailable`; one that writes may
raise `Overloaded` or `StorageFull`, and then has changed nothing.
"""

from __future__ import annotations

from typing import Protocol

from clarion.model import Administrator, Allowance, ApiKey, App, Once, Page, ProviderKey, Replay


class Clock(Protocol):
    """The one source of time and of ids."""

    def now(self) -> int:
        """Return the milliseconds since 1970, UTC."""
        ...

    def new_id(self) -> str:
        """Return a new UUIDv7; ids made later sort later."""
        ...


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


class Keys(Protocol):
    """The API keys of the apps."""

    async def create(self, key: ApiKey, once: Once | None = None) -> Replay | None:
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


class Limits(Protocol):
    """Counters that say when a caller has had enough. They may be lost, and then start at zero."""

    async def take(self, key: str, *, limit: int, window_s: int, now: int) -> Allowance:
        """Count one use of `key` in the current window and return what is left.

        Windows are aligned to multiples of `window_s`. The use number `limit + 1` of a window is
        the first that is exceeded. Uses beyond the limit are counted too, but never reset later.
        """
        ...


class Dependency(Protocol):
    """Something that Clarion needs and that can be out of reach."""

    async def check(self) -> None:
        """Return if it answers; raise otherwise, within two seconds."""
        ...


class Vault(Protocol):
    """Keeps secrets that must be read again. The key is not in the database."""

    def seal(self, secret: bytes, context: str) -> bytes:
        """Encrypt a secret for one place; it opens nowhere else."""
        ...

    def open(self, sealed: bytes, context: str) -> bytes:
        """Decrypt; `InternalError` if it was changed or belongs to another context."""
        ...
