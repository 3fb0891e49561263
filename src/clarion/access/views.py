"""Apps and their keys as the API and the command line show them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from clarion.access.keys import PREFIX, IssuedKey
from clarion.access.model import PER_HOUR_LIMIT, ApiKey, App, UserTokenAlgorithm
from clarion.access.origins import ORIGIN, ORIGINS_LIMIT
from clarion.fields import documented
from clarion.http.views import Timestamp, View

_ORIGINS = msgspec.Meta(
    description="Origins of web pages whose streams and sockets are accepted, like "
    "`https://app.example.com`, at most 50; `*` means all."
)
AllowedOrigins = Annotated[
    list[Annotated[str, documented(pattern=ORIGIN, maxLength=255)]],
    documented(maxItems=ORIGINS_LIMIT),
    _ORIGINS,
]


PerHour = Annotated[int | None, documented(minimum=0, maximum=PER_HOUR_LIMIT)]


class AppView(View):
    """An application that uses Clarion; users, devices and keys belong to an app."""

    id: str
    """The id of the app."""
    name: str
    """The name of the app for people."""
    bundle_id: str
    """The bundle id, which is also the APNs topic of its pushes."""
    team_id: Annotated[str, msgspec.Meta(description="The `iss` of its APNs provider tokens.")]
    allowed_origins: AllowedOrigins
    user_per_hour: PerHour
    """Notifications that a user gets in an hour; 0: no limit, null: that of the installation."""
    category_per_hour: PerHour
    """The same for each category."""
    created_at: Timestamp
    """When the app was created."""


def show_app(app: App) -> AppView:
    return AppView.of(app, allowed_origins=list(app.allowed_origins))


class ApiKeyView(View):
    """An API key without its secret."""

    id: str
    """The id of the key."""
    prefix: Annotated[str, msgspec.Meta(description="How the key begins: `ck_` and its id.")]
    label: str
    """A name for people."""
    scopes: list[str]
    """What the key may do."""
    created_at: Timestamp
    """When the key was created."""
    expires_at: Timestamp | None
    """Until when it is valid; null: until it is revoked."""
    revoked_at: Timestamp | None
    """When it was revoked; null if it was not."""
    last_used_at: Annotated[Timestamp | None, msgspec.Meta(description="Recorded once a minute.")]
    replaced_by: Annotated[
        str | None, msgspec.Meta(description="The id of the key that a rotation made.")
    ]


class CreatedApiKey(ApiKeyView):
    """A new API key with its secret: `api_key` is shown only in this response."""

    api_key: str
    """The key itself. Store it: it is returned this once."""


def show_key(key: ApiKey) -> ApiKeyView:
    return ApiKeyView.of(key, prefix=PREFIX + key.id, scopes=sorted(key.scopes))


def show_created_key(issued: IssuedKey) -> CreatedApiKey:
    key, secret = issued.key, issued.secret
    return CreatedApiKey.of(
        key, prefix=PREFIX + key.id, scopes=sorted(key.scopes), api_key=secret.text
    )


class UserKeyView(View):
    """A key for user tokens, without the key itself."""

    kid: str
    """The name of the key, which tokens have in their header."""
    algorithm: UserTokenAlgorithm
    """How tokens are signed."""
    created_at: Timestamp
    """When the key was created."""
    expires_at: Timestamp | None
    """Until when it is valid; null: until it is revoked."""
    revoked_at: Timestamp | None
    """When it was revoked; null if it was not."""


class CreatedUserKey(UserKeyView):
    """A new user key. If Clarion created the `secret`, it is shown only in this response."""

    secret: str | None
    """The secret that was made. Store it: it is returned this once. Null if you sent the key."""


class ProviderKeyView(View):
    """The public key of an APNs provider."""

    key_id: str
    """The `kid` of the provider tokens that it signs."""
    team_id: str
    """The `iss` of these tokens."""
    public_key: str
    """The public key, in PEM."""
    created_at: Timestamp
    """When the key was created."""
    expires_at: Timestamp | None
    """Until when it is valid; null: until it is revoked."""
    revoked_at: Timestamp | None
    """When it was revoked; null if it was not."""
