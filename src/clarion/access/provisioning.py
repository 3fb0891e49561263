"""Creates apps with all the keys they need."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clarion.access.keys import issue_key, random_text
from clarion.access.model import App, ProviderKey, UserTokenAlgorithm
from clarion.access.port import Apps, Keys, Vault
from clarion.access.user_tokens import user_key_context
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields

# Apple's team and key ids have ten characters, and APNs clients expect that.
_APPLE_ID_LENGTH = 10
_USER_SECRET_LENGTH = 43  # 256 bits
_BUNDLE_ID = re.compile(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NewApp:
    """A new app with its secrets, which cannot be shown again."""

    app: App
    api_key: str
    user_secret: str
    key_id: str
    provider_key_pem: bytes


async def create_app(
    *, name: str, bundle_id: str, apps: Apps, keys: Keys, vault: Vault, clock: Clock
) -> NewApp:
    """Create an app with an API key, a user secret and a provider key."""
    if not _BUNDLE_ID.fullmatch(bundle_id):
        raise InvalidFields(FieldFault("bundle_id", "must look like com.example.app"))
    now, app_id = clock.now(), clock.new_id()
    user_secret = random_text(_USER_SECRET_LENGTH)
    app = App(
        id=app_id,
        name=name,
        bundle_id=bundle_id,
        team_id=_apple_id(),
        user_token_algorithm=UserTokenAlgorithm.HS256,
        user_token_key=vault.seal(user_secret.encode(), user_key_context(app_id)),
        created_at=now,
    )
    private_key = ec.generate_private_key(ec.SECP256R1())
    provider_key = ProviderKey(
        app_id=app_id,
        key_id=_apple_id(),
        team_id=app.team_id,
        public_key=_public_pem(private_key),
        created_at=now,
    )
    await apps.create(app, provider_key)
    issued = issue_key(app_id=app_id, label="first key", scopes=["*"], now=now)
    await keys.create(issued.key)
    return NewApp(
        app=app,
        api_key=issued.secret.text,
        user_secret=user_secret,
        key_id=provider_key.key_id,
        provider_key_pem=_private_pem(private_key),
    )


def _apple_id() -> str:
    return random_text(_APPLE_ID_LENGTH).upper()


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    encoded = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded.decode()
