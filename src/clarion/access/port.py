"""The ports of apps, keys, authentication, and the vault for secrets."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol, TypeVar

from clarion.access.model import (
    AdminCaller,
    AdminCredential,
    ApiKey,
    App,
    Caller,
    ProviderKey,
    Ticket,
    UserCaller,
    UserKey,
)
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.pages import Page

K = TypeVar("K", UserKey, ProviderKey)
# So many keys of each kind an app may have that are valid at the same time.
LIVE_KEYS_LIMIT = 10
# API keys, of which an app may have one for each of its servers.
LIVE_API_KEYS_LIMIT = 1_000


class Apps(Protocol):
    """Apps. One that was deleted is not found by any of these but `list_deleted`."""

    async def create(
        self,
        app: App,
        provider_key: ProviderKey,
        user_key: UserKey | None = None,
        api_key: ApiKey | None = None,
        once: IdempotencyClaim | None = None,
    ) -> StoredResponse | None:
        """Add an app with its first keys; `Conflict` if a bundle id or key id exists.

        `once` as in `Keys.create`.
        """

    async def get(self, app_id: str) -> App | None:
        """Return the app, or None."""

    async def list(self, after: str = "", limit: int = 1_000) -> tuple[App, ...]:
        """Return the apps, oldest first, at most `limit`, starting after the id `after`."""

    async def update(
        self,
        app_id: str,
        *,
        name: str | None = None,
        allowed_origins: tuple[str, ...] | None = None,
        user_per_hour: int | None = None,
        category_per_hour: int | None = None,
    ) -> App | None:
        """Change what is not None, and return the app; None if it is not there.

        `OF_INSTALLATION` as a limit removes that of the app.
        """

    async def delete(self, app_id: str, now: int) -> App | None:
        """Mark an app as deleted, and end all its keys and tickets; return it, or None.

        Its bundle id is free again at once. `AppDeletion` removes the rest in the background.
        """

    async def remove_mark(self, app_id: str, before: int) -> None:
        """Remove the row of an app that was deleted before a time: nothing else of it is left."""

    async def list_deleted(self) -> tuple[str, ...]:
        """Return the ids of the apps that are deleted, as long as something of them may be left."""

    async def find_provider_key(self, key_id: str) -> ProviderKey | None:
        """Return the provider key of any app, in any state, or None."""


class AppKeys(Protocol[K]):
    """The keys of one kind: for user tokens, named by `kid`, or of APNs providers, by `key_id`."""

    async def list(self, app_id: str) -> tuple[K, ...]:
        """Return the app's keys, at most 100: live ones first, then those that ended last."""

    async def add(
        self, key: K, now: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a key; False if the app has `LIVE_KEYS_LIMIT` live ones, or is not there.

        `Conflict` if its name is taken: the `kid` in the app, the `key_id` on the whole server.
        `once` as in `Keys.create`.
        """

    async def rotate(
        self, name: str, new: K, *, now: int, ends_at: int, once: IdempotencyClaim | None = None
    ) -> StoredResponse | bool:
        """Add a key in place of the live one with a name, which expires at `ends_at` or before.

        False if the app has no such live key, or too many. `Conflict` and `once` as in `add`.
        """

    async def revoke(self, app_id: str, name: str, now: int) -> K | None:
        """Revoke a key and return it; None if the app does not have it. Idempotent."""


class Keys(Protocol):
    """The API keys of the apps."""

    async def create(
        self, key: ApiKey, once: IdempotencyClaim | None = None
    ) -> StoredResponse | None:
        """Add a key.

        With `once`: if its idempotency key was used before for the same request and has not
        expired, nothing is added and the first response is returned; for a different request
        `IdempotencyKeyReused`. `Conflict` if a key with this id exists, or the app has
        `LIVE_API_KEYS_LIMIT` live ones. Nodes that add at the same time may exceed that slightly.
        """

    async def rotate(
        self,
        key_id: str,
        new: ApiKey,
        *,
        now: int,
        ends_at: int,
        once: IdempotencyClaim | None = None,
    ) -> StoredResponse | None:
        """Add a key in place of the live one with the id, which expires at `ends_at` or before.

        `Conflict` if the app has no such live key, it was rotated before, or the app has too many
        as in `create`; then nothing changes.
        `once` as in `create`.
        """

    async def find(self, key_id: str) -> ApiKey | None:
        """Return the key of any app, in any state, or None."""

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[ApiKey]:
        """Return the app's keys in the order of their ids, starting after the id `after`."""

    async def revoke(self, app_id: str, key_id: str, now: int) -> ApiKey | None:
        """Revoke a key and return it; None if the app does not have it. Idempotent."""

    async def touch(self, key_ids: Collection[str], now: int) -> None:
        """Note that keys were used; a later time that is known stays."""


class Tickets(Protocol):
    """Tickets of users, each for one use."""

    async def add(self, ticket: Ticket) -> None:
        """Store a ticket by its hash."""

    async def redeem(self, ticket_hash: bytes, now: int) -> Ticket | None:
        """Use up a ticket and return it; None if it is unknown, used or expired.

        Of several calls at once, on any nodes, one gets the ticket.
        """


class Authenticator(Protocol):
    """Identifies callers by the credential that they send."""

    async def identify(self, authorization: str | None) -> Caller:
        """Return the caller by the value of the `Authorization` header.

        `Unauthenticated`, with the reason, if the credential is missing or not valid.
        """

    async def redeem(self, ticket: str) -> UserCaller:
        """Use up a ticket and return the user that it was made for.

        `Unauthenticated` if it is unknown, used or expired.
        """


class Origins(Protocol):
    """The origins of web pages that an app allows."""

    async def is_allowed(self, app_id: str, origin: str) -> bool:
        """Return whether pages of an origin, as a browser sends it, may act for the app's users.

        A change is seen within two seconds on every node.
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
