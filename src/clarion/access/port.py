"""What other slices use of apps and their callers: authentication, and the vault for secrets."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from clarion.access.administrators.authentication import AdminAuthenticator as AdminAuthenticator
from clarion.access.administrators.sql.stores import AdminStores as AdminStores
from clarion.access.model import Caller, UserCaller
from clarion.access.sql import Apps as Apps
from clarion.access.vault import Vault as Vault


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


class Authenticators(NamedTuple):
    """Who identifies the callers of the API."""

    callers: Authenticator
    administrators: AdminAuthenticator
