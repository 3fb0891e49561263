"""Creating apps with all the keys they need."""

import re

import pytest
from cryptography.hazmat.primitives import serialization

from clarion.access.app_keys import user_key_context
from clarion.access.keys import parse_api_secret
from clarion.access.model import ALL_SCOPES, UserKey, UserTokenAlgorithm
from clarion.access.provisioning import (
    NewApp,
    create_app,
)
from clarion.access.sql import AppKeys, Apps, Keys
from clarion.access.vault import Vault
from clarion.errors import InvalidFields
from tests.factories import FixedClock


@pytest.fixture
async def made(apps: Apps, vault: Vault, clock: FixedClock) -> NewApp:
    return await create_app(
        name="App", bundle_id="com.example.app", apps=apps, vault=vault, clock=clock
    )


async def test_the_app_is_stored(apps: Apps, made: NewApp, clock: FixedClock) -> None:
    assert await apps.get(made.app.id) == made.app
    assert made.app.created_at == clock.now()
    assert made.app.allowed_origins == ()


async def test_its_api_key_has_all_scopes(keys: Keys, made: NewApp) -> None:
    secret = parse_api_secret(made.api_key)
    assert secret is not None
    stored = await keys.find(secret.id)
    assert stored is not None
    assert secret.matches(stored.secret_hash)
    assert (stored.app_id, stored.scopes) == (made.app.id, ALL_SCOPES)


async def test_its_user_secret_is_sealed_for_it_alone(
    vault: Vault, user_keys: AppKeys[UserKey], made: NewApp
) -> None:
    (key,) = await user_keys.list(made.app.id)
    opened = vault.open(key.key, user_key_context(made.app.id, key.kid))
    assert opened == made.user_secret.encode()
    assert made.user_secret.encode() not in key.key
    assert key.algorithm is UserTokenAlgorithm.HS256


async def test_its_provider_key_is_a_pair(apps: Apps, made: NewApp) -> None:
    private = serialization.load_pem_private_key(made.provider_key_pem, password=None)
    stored = await apps.find_provider_key(made.key_id)
    assert stored is not None
    assert stored.app_id == made.app.id
    assert stored.public_key.encode() == private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_ids_have_the_shape_that_apns_clients_expect(made: NewApp) -> None:
    for apple_id in (made.app.team_id, made.key_id):
        assert re.fullmatch(r"[0-9A-Z]{10}", apple_id)


def test_no_secret_is_in_the_repr(made: NewApp) -> None:
    assert made.api_key not in repr(made)
    assert made.user_secret not in repr(made)


@pytest.mark.parametrize("bundle_id", ["", "app", ".app", "com..x", "com.x y", "com.x\n", "com.ä"])
async def test_a_bundle_id_must_look_like_one(
    apps: Apps, vault: Vault, clock: FixedClock, bundle_id: str
) -> None:
    with pytest.raises(InvalidFields, match="bundle_id: must look like"):
        await create_app(name="App", bundle_id=bundle_id, apps=apps, vault=vault, clock=clock)
    assert await apps.list() == ()
