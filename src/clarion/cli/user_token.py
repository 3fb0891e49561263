"""`clarion user token`: sign a user token, to try things out."""

from __future__ import annotations

from typing import Annotated

import jwt
from cyclopts import Parameter

from clarion.access.app_keys import user_key_context
from clarion.access.model import App, UserTokenAlgorithm
from clarion.cli.app import find_app
from clarion.cli.first_run import read_first_run
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import print_json
from clarion.clock import to_rfc3339
from clarion.errors import CommandFailed, FieldFault, InvalidFields
from clarion.fields import check_user_id
from clarion.http.shapes import check_value
from clarion.stores import Stores, open_stores

_HOUR_S = 3600


async def token(
    user_id: str,
    /,
    *,
    hours: int = 1,
    app: Annotated[str, Parameter(name="--app")] = "",
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Sign a user token for development and print it.

    Your own servers sign the tokens of your users: see docs/how-to/user-tokens.md.

    Parameters
    ----------
    hours
        For how long the token is valid, at most --user-token-hours. Default: 1.
    app
        The id of the app. Default: the app of first-run.json, or else the only one.
    json
        Print the token with the user, the app and when it expires.

    """
    check_value("user id", check_user_id, user_id)
    loaded = load_settings(settings)
    if not 1 <= hours <= loaded.user_token_hours:
        reason = f"must be from 1 to {loaded.user_token_hours} (--user-token-hours)"
        raise InvalidFields(FieldFault("--hours", reason))
    async with open_stores(loaded) as stores:
        found = await _choose_app(stores, app)
        expires_s = stores.clock.now() // 1000 + hours * _HOUR_S
        signed = await _sign(stores, found, {"sub": user_id, "aud": found.id, "exp": expires_s})
    if json:
        expires_at = to_rfc3339(expires_s * 1000)
        print_json(
            {"token": signed, "user_id": user_id, "app_id": found.id, "expires_at": expires_at}
        )
    else:
        print(signed)


async def _choose_app(stores: Stores, app_id: str) -> App:
    if not app_id and stores.directory.first_run.exists():
        app_id = read_first_run(stores.directory.first_run).app.id
    if app_id:
        return await find_app(stores, app_id)
    found = await stores.apps.list(limit=2)
    if len(found) != 1:
        raise CommandFailed("Choose an app with --app. `clarion app list` lists the apps.")
    return found[0]


async def _sign(stores: Stores, app: App, claims: dict[str, str | int]) -> str:
    now = stores.clock.now()
    for key in await stores.user_keys.list(app.id):
        if key.algorithm is UserTokenAlgorithm.HS256 and key.is_live(now):
            secret = stores.vault.open(key.key, user_key_context(app.id, key.kid))
            return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": key.kid})
    raise CommandFailed(
        "This app has no live HS256 secret to sign with. `clarion user-key create` adds one; of "
        "ES256 and EdDSA keys only you have the private key."
    )
