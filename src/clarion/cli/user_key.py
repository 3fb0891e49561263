"""`clarion user-key`: the keys by which the user tokens of an app are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

from clarion.access.app_keys import IssuedUserKey
from clarion.access.model import UserTokenAlgorithm
from clarion.access.views import CreatedUserKey, UserKeyView
from clarion.app.stores import open_stores
from clarion.cli.flags import SettingFlags, Switch, load_settings, read_text
from clarion.cli.printing import print_json, print_rows

user_key = App(name="user-key")


@user_key.command
async def create(
    app_id: str,
    /,
    *,
    algorithm: Literal["HS256", "ES256", "EdDSA"] = "HS256",
    kid: str | None = None,
    public_key: Path | None = None,
    secret: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a key and print its kid; for HS256 the secret too, which cannot be shown again.

    Parameters
    ----------
    algorithm
        HS256 (a shared secret), ES256 or EdDSA (a public key). Default: HS256.
    kid
        The name of the key. One is made if it is left out.
    public_key
        A file with the public key (PEM), for ES256 and EdDSA.
    secret
        A file with a secret of at least 32 bytes, for HS256. One is made if it is left out.
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        issued = await stores.keyring.propose_user_key(
            app_id,
            algorithm=UserTokenAlgorithm(algorithm),
            kid=kid,
            secret=read_text(secret),
            public_key=read_text(public_key),
        )
        await stores.keyring.add_user_key(issued.key)
        _print_new(issued, json=json)


@user_key.command(name="list")
async def list_keys(app_id: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """List the user keys of an app: kid, algorithm, state.

    Parameters
    ----------
    json
        Print them as the API shows them.

    """
    async with open_stores(load_settings(settings)) as stores:
        keys, now = await stores.keyring.list_user_keys(app_id), stores.clock.now()
    if json:
        print_json([UserKeyView.of(each) for each in keys])
    elif keys:
        print_rows([(each.kid, each.algorithm.value, each.describe_state(now)) for each in keys])


@user_key.command
async def rotate(
    app_id: str,
    kid: str,
    /,
    *,
    overlap_s: int = 24 * 3600,
    new_kid: str | None = None,
    public_key: Path | None = None,
    secret: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a key of the same algorithm. The old one expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        So many seconds the old key stays valid, at most 30 days. Default: a day.
    new_kid
        The name of the new key. One is made if it is left out.
    public_key
        A file with the new public key (PEM), for ES256 and EdDSA.
    secret
        A file with a new secret of at least 32 bytes, for HS256. One is made if it is left out.
    json
        Print the new key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        old = await stores.keyring.find_user_key(app_id, kid)
        issued = await stores.keyring.propose_user_key(
            app_id,
            algorithm=old.algorithm,
            kid=new_kid,
            secret=read_text(secret),
            public_key=read_text(public_key),
        )
        await stores.keyring.rotate_user_key(kid, issued.key, overlap_s)
        _print_new(issued, json=json)


@user_key.command
async def revoke(
    app_id: str, kid: str, /, *, json: Switch = False, **settings: SettingFlags
) -> None:
    """Revoke a user key. Running servers refuse its tokens within two seconds.

    Parameters
    ----------
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        revoked = await stores.keyring.revoke_user_key(app_id, kid)
        if json:
            print_json(UserKeyView.of(revoked))
        else:
            print(f"Revoked {kid}.")


def _print_new(issued: IssuedUserKey, *, json: bool) -> None:
    if json:
        print_json(CreatedUserKey.of(issued.key, secret=issued.secret))
        return
    print(f"kid     {issued.key.kid}")
    if issued.secret is not None:
        print(f"secret  {issued.secret}")
