"""Creates apps with all the keys they need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clarion.access.app_keys import issue_provider_key, issue_user_key
from clarion.access.keys import issue_key, random_text
from clarion.access.model import (
    OF_INSTALLATION,
    PER_HOUR_LIMIT,
    ApiKey,
    App,
    ProviderKey,
    UserKey,
    UserTokenAlgorithm,
)
from clarion.access.origins import check_origins
from clarion.access.sql import Apps
from clarion.access.vault import Vault
from clarion.clock import Clock
from clarion.fields import check_value, is_plain

# Apple's team ids have ten characters, and APNs clients expect that.
_TEAM_ID_LENGTH = 10
_NAME_LENGTH = 100
_BUNDLE_ID_LENGTH = 155
_BUNDLE_ID = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
# For the OpenAPI document.
BUNDLE_ID = f"^{_BUNDLE_ID.pattern}$"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NewApp:
    """A new app with its first keys, and their secrets, which cannot be shown again."""

    app: App
    key: ApiKey
    user_key: UserKey
    provider_key: ProviderKey
    api_key: str
    user_secret: str
    provider_key_pem: bytes

    @property
    def key_id(self) -> str:
        return self.provider_key.key_id


def check_app_name(name: str) -> str:
    """Return the name of an app; `ValueError` says what is wrong with it."""
    if not 0 < len(name.strip()) <= len(name) <= _NAME_LENGTH or not is_plain(name):
        raise ValueError(f"must have 1 to {_NAME_LENGTH} characters, and no control characters")
    return name


def check_per_hour(limit: int | None) -> int:
    """Return a limit of an app as it is updated; `ValueError` says what is wrong with it."""
    if limit is None:
        return OF_INSTALLATION
    if not 0 <= limit <= PER_HOUR_LIMIT:
        raise ValueError(f"must be from 0 to {PER_HOUR_LIMIT:,}, or null")
    return limit


def check_bundle_id(bundle_id: str) -> str:
    """Return the bundle id of an app; `ValueError` says what is wrong with it."""
    if len(bundle_id) > _BUNDLE_ID_LENGTH or not _BUNDLE_ID.fullmatch(bundle_id):
        raise ValueError(
            f"must look like com.example.app, with at most {_BUNDLE_ID_LENGTH} characters"
        )
    return bundle_id


def propose_app(
    *,
    name: str,
    bundle_id: str,
    vault: Vault,
    clock: Clock,
    allowed_origins: Sequence[str] = (),
    expires_at: int | None = None,
) -> NewApp:
    """Return a new app with its keys, without storing it; `InvalidFields` names what is wrong.

    `expires_at` is when its keys expire.
    """
    now = clock.now()
    app = App(
        id=clock.new_id(),
        name=check_value("name", check_app_name, name),
        bundle_id=check_value("bundle_id", check_bundle_id, bundle_id),
        team_id=random_text(_TEAM_ID_LENGTH).upper(),
        created_at=now,
        allowed_origins=check_value("allowed_origins", check_origins, allowed_origins),
    )
    user = issue_user_key(
        app_id=app.id,
        algorithm=UserTokenAlgorithm.HS256,
        vault=vault,
        now=now,
        expires_at=expires_at,
    )
    provider = issue_provider_key(app=app, now=now, expires_at=expires_at)
    issued = issue_key(
        app_id=app.id, label="first key", scopes=["*"], now=now, expires_at=expires_at
    )
    return NewApp(
        app=app,
        key=issued.key,
        user_key=user.key,
        provider_key=provider.key,
        api_key=issued.secret.text,
        user_secret=user.secret or "",
        provider_key_pem=(provider.private_key or "").encode(),
    )


async def create_app(
    *,
    name: str,
    bundle_id: str,
    apps: Apps,
    vault: Vault,
    clock: Clock,
    allowed_origins: Sequence[str] = (),
) -> NewApp:
    """Create an app with an API key, a user secret and a provider key."""
    new = propose_app(
        name=name, bundle_id=bundle_id, vault=vault, clock=clock, allowed_origins=allowed_origins
    )
    await apps.create(new.app, new.provider_key, new.user_key, new.key)
    return new
