"""More apps and provider keys, which the endpoint must not confuse with those of the first app."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clarion.access.model import App, ProviderKey
from clarion.access.provisioning import create_app
from clarion.access.sql import Apps, open_provider_keys
from clarion.access.vault import Vault
from clarion.clock import SystemClock
from clarion.store.engine import Engine
from clarion.store.opening import open_engine
from clarion.system.data_directory import DataDirectory
from tests.conformance.provider import Provider
from tests.replacing import replace

LOOKALIKE = "com.example.voip"


@dataclass(frozen=True, kw_only=True)
class OtherApps:
    """The apps beside the first one, each as its provider."""

    other: Provider  # an app of another team
    sibling: Provider  # another app of the first one's team
    second_key: Provider  # the first app by another key
    revoked: Provider  # the first app by a key that was revoked
    lookalike: Provider  # an app whose bundle id ends like a suffix of push types


def add_other_apps(data: Path, first: Provider) -> OtherApps:
    """Add them to a data directory that no server uses."""
    return asyncio.run(_add_other_apps(data, first))


async def _add_other_apps(data: Path, first: Provider) -> OtherApps:
    url = f"sqlite:///{data / 'clarion.db'}"
    engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
    vault = Vault(*DataDirectory(data).read_master_keys())
    try:
        return OtherApps(
            other=await _new_app(engine, vault, "com.example.other"),
            sibling=await _new_sibling(engine, first),
            second_key=await _new_key(engine, first, "SECONDKEY0"),
            revoked=await _new_key(engine, first, "REVOKEDKEY", is_revoked=True),
            lookalike=await _new_app(engine, vault, LOOKALIKE),
        )
    finally:
        await engine.close()


async def _new_app(engine: Engine, vault: Vault, bundle_id: str) -> Provider:
    new = await create_app(
        name=bundle_id,
        bundle_id=bundle_id,
        apps=Apps(engine),
        vault=vault,
        clock=SystemClock(),
    )
    return Provider(
        app_id=new.app.id,
        bundle_id=new.app.bundle_id,
        team_id=new.app.team_id,
        key_id=new.key_id,
        api_key=new.api_key,
        key_pem=new.provider_key_pem.decode(),
    )


async def _new_sibling(engine: Engine, first: Provider) -> Provider:
    app = await Apps(engine).get(first.app_id)
    assert isinstance(app, App)
    made = replace(app, id=SystemClock().new_id(), bundle_id="com.example.sibling")
    key, pem = _make_key(made.id, first.team_id, "SIBLINGKEY")
    await Apps(engine).create(made, key)
    return replace(
        first, app_id=made.id, bundle_id=made.bundle_id, key_id=key.key_id, key_pem=pem, api_key=""
    )


async def _new_key(
    engine: Engine, first: Provider, key_id: str, *, is_revoked: bool = False
) -> Provider:
    """Give the app one more key."""
    key, pem = _make_key(first.app_id, first.team_id, key_id)
    keys = open_provider_keys(engine)
    assert await keys.add(key, key.created_at)
    if is_revoked:
        await keys.revoke(key.app_id, key.key_id, key.created_at)
    return replace(first, key_id=key.key_id, key_pem=pem)


def _make_key(app_id: str, team_id: str, key_id: str) -> tuple[ProviderKey, str]:
    private = ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    secret = private.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = ProviderKey(
        app_id=app_id,
        key_id=key_id,
        team_id=team_id,
        public_key=public.decode(),
        created_at=SystemClock().now(),
    )
    return key, secret.decode()
