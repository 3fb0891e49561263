"""User keys and provider keys of apps over HTTP, for administrators.

With a new key one can act for every user of the app, or push to all its devices, which is more than
any scope allows. So API keys cannot add one. In a session, the password must have been given in the
last 10 minutes; a key that an admin API key adds does not outlive it.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post

from clarion.access.administrators.api.callers import check_creator
from clarion.access.app_keys import FIRST_KID, Overlap
from clarion.access.keyring import Keyring
from clarion.access.model import Role, UserTokenAlgorithm, ends_of_children
from clarion.access.views import CreatedUserKey, ProviderKeyView, UserKeyView
from clarion.clock import Clock
from clarion.fields import AppId, documented
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, admin_of
from clarion.http.dependencies import Injected
from clarion.http.idempotency import Idempotency
from clarion.http.parameters import IdempotencyKey
from clarion.http.shapes import Items

_TAGS = ("Apps",)
_DAY_S = 24 * 3600
PublicKey = Annotated[
    str | None, msgspec.Meta(description="PEM. On the curve P-256 (ES256), or Ed25519 (EdDSA).")
]
Secret = Annotated[
    str | None,
    msgspec.Meta(description="For HS256: at least 32 bytes. If left out, one is created."),
]

NewKid = Annotated[str, documented(pattern=f"^(?!{FIRST_KID}$)[A-Za-z0-9._-]{{1,64}}$")]
UserKeyName = Annotated[str, msgspec.Meta(description="The name (`kid`) of the user key.")]
ProviderKeyId = Annotated[str, msgspec.Meta(description="The id (`kid`) of the provider key.")]


class NewUserKey(Body):
    """A key for user tokens: a secret (HS256), or a public key (ES256, EdDSA)."""

    algorithm: UserTokenAlgorithm = UserTokenAlgorithm.HS256
    """How tokens are signed."""
    kid: NewKid | None = None
    """The name of the key; one is made if left out."""
    secret: Secret = None
    public_key: PublicKey = None


class UserKeyRotation(Body):
    """The key that replaces another, with the same algorithm."""

    overlap_s: Overlap = _DAY_S
    kid: NewKid | None = None
    """The name of the new key; one is made if left out."""
    secret: Secret = None
    public_key: PublicKey = None


class NewProviderKey(Body):
    """A key of an APNs provider; without a `public_key`, a pair is created."""

    key_id: Annotated[str, documented(pattern="^[A-Z0-9]{10}$")] | None = None
    """Ten capital letters and digits; made if left out."""
    public_key: PublicKey = None


class ProviderKeyRotation(NewProviderKey):
    """The key that replaces another."""

    overlap_s: Overlap = _DAY_S


class CreatedProviderKey(ProviderKeyView):
    """A new provider key. If Clarion created the pair, only this response has `private_key`."""

    private_key: str | None
    """The private key that was made, in PEM. Store it: it is returned this once. Null if you sent
    the key.
    """


class UserKeysController(Controller):
    """The keys that verify the user tokens of an app."""

    path = "/v1/apps/{app_id:str}/user-keys"
    tags = _TAGS

    @get(summary="List user keys")
    async def list_user_keys(
        self, request: ApiRequest, app_id: AppId, keyring: Injected[Keyring]
    ) -> Items[UserKeyView]:
        """Return at most 100 keys: live ones first, then those that ended last."""
        admin_of(request, Role.VIEWER, app_id)
        return Items([UserKeyView.of(each) for each in await keyring.list_user_keys(app_id)], None)

    @post(summary="Create a user key", status_code=201)
    async def create_user_key(
        self,
        request: ApiRequest,
        app_id: AppId,
        data: NewUserKey,
        keyring: Injected[Keyring],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedUserKey]:
        """Add a key; every node accepts its tokens within two seconds."""
        ends_at = _creator_of(request, app_id, keyring.clock)
        issued = await keyring.propose_user_key(
            app_id, expires_at=ends_at, **msgspec.structs.asdict(data)
        )
        answer = CreatedUserKey.of(issued.key, secret=issued.secret)
        add = partial(keyring.add_user_key, issued.key)
        return await idempotency.create(request, idempotency_key, answer, add)

    @post("/{kid:str}/rotate", summary="Rotate a user key", status_code=201)
    async def rotate_user_key(
        self,
        request: ApiRequest,
        app_id: AppId,
        kid: UserKeyName,
        data: UserKeyRotation,
        keyring: Injected[Keyring],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedUserKey]:
        """Add a key of the same algorithm; the old one expires when the overlap ends."""
        ends_at = _creator_of(request, app_id, keyring.clock)
        old = await keyring.find_user_key(app_id, kid)
        issued = await keyring.propose_user_key(
            app_id,
            algorithm=old.algorithm,
            kid=data.kid,
            secret=data.secret,
            public_key=data.public_key,
            expires_at=ends_at,
        )
        answer = CreatedUserKey.of(issued.key, secret=issued.secret)
        rotate = partial(keyring.rotate_user_key, kid, issued.key, data.overlap_s)
        return await idempotency.create(request, idempotency_key, answer, rotate)

    @delete("/{kid:str}", summary="Revoke a user key", status_code=200)
    async def revoke_user_key(
        self, request: ApiRequest, app_id: AppId, kid: UserKeyName, keyring: Injected[Keyring]
    ) -> UserKeyView:
        """Revoke a key: its tokens are refused within two seconds on every node. Idempotent."""
        admin_of(request, Role.ADMIN, app_id)
        return UserKeyView.of(await keyring.revoke_user_key(app_id, kid))


class ProviderKeysController(Controller):
    """The keys that identify the APNs providers of an app."""

    path = "/v1/apps/{app_id:str}/provider-keys"
    tags = _TAGS

    @get(summary="List provider keys")
    async def list_provider_keys(
        self, request: ApiRequest, app_id: AppId, keyring: Injected[Keyring]
    ) -> Items[ProviderKeyView]:
        """Return at most 100 keys: live ones first, then those that ended last."""
        admin_of(request, Role.VIEWER, app_id)
        found = await keyring.list_provider_keys(app_id)
        return Items([ProviderKeyView.of(each) for each in found], None)

    @post(summary="Create a provider key", status_code=201)
    async def create_provider_key(
        self,
        request: ApiRequest,
        app_id: AppId,
        data: NewProviderKey,
        keyring: Injected[Keyring],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedProviderKey]:
        """Add the public key of a provider, or make a pair."""
        ends_at = _creator_of(request, app_id, keyring.clock)
        issued = await keyring.propose_provider_key(
            app_id, key_id=data.key_id, public_key=data.public_key, expires_at=ends_at
        )
        answer = CreatedProviderKey.of(issued.key, private_key=issued.private_key)
        add = partial(keyring.add_provider_key, issued.key)
        return await idempotency.create(request, idempotency_key, answer, add)

    @post("/{key_id:str}/rotate", summary="Rotate a provider key", status_code=201)
    async def rotate_provider_key(
        self,
        request: ApiRequest,
        app_id: AppId,
        key_id: ProviderKeyId,
        data: ProviderKeyRotation,
        keyring: Injected[Keyring],
        idempotency: Injected[Idempotency],
        idempotency_key: IdempotencyKey = None,
    ) -> Response[CreatedProviderKey]:
        """Add a key; the old one expires when the overlap ends."""
        ends_at = _creator_of(request, app_id, keyring.clock)
        await keyring.find_provider_key(app_id, key_id)
        issued = await keyring.propose_provider_key(
            app_id, key_id=data.key_id, public_key=data.public_key, expires_at=ends_at
        )
        answer = CreatedProviderKey.of(issued.key, private_key=issued.private_key)
        rotate = partial(keyring.rotate_provider_key, key_id, issued.key, data.overlap_s)
        return await idempotency.create(request, idempotency_key, answer, rotate)

    @delete("/{key_id:str}", summary="Revoke a provider key", status_code=200)
    async def revoke_provider_key(
        self, request: ApiRequest, app_id: AppId, key_id: ProviderKeyId, keyring: Injected[Keyring]
    ) -> ProviderKeyView:
        """Revoke a key: its tokens are refused within five seconds on every node. Idempotent."""
        admin_of(request, Role.ADMIN, app_id)
        return ProviderKeyView.of(await keyring.revoke_provider_key(app_id, key_id))


def _creator_of(request: ApiRequest, app_id: str, clock: Clock) -> int | None:
    """Check that the caller may create keys of an app; return when they expire with the caller."""
    caller = admin_of(request, Role.ADMIN, app_id)
    check_creator(request, clock)
    return ends_of_children(caller)


ROUTES = (UserKeysController, ProviderKeysController)
