"""`clarion user token`: sign a user token for development."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from clarion.access.model import App
from clarion.access.signing import UserTokenSigner
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import find_app
from clarion.cli.first_run import read_first_run
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import print_result
from clarion.clock import to_rfc3339
from clarion.errors import CommandFailed, FieldFault, InvalidFields
from clarion.fields import check_user_id, check_value

_HOUR_S = 3600
_CANNOT_SIGN = (
    "This app has no live HS256 secret to sign with. `clarion user-key create` adds one; of ES256 "
    "and EdDSA keys only you have the private key."
)


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
        signer = UserTokenSigner(stores.user_keys, stores.vault, stores.clock)
        done = await signer.sign(found.id, user_id, lasts_s=hours * _HOUR_S)
    if done is None:
        raise CommandFailed(_CANNOT_SIGN)
    signed, expires_s = done
    expires_at = to_rfc3339(expires_s * 1000)
    shown = {"token": signed, "user_id": user_id, "app_id": found.id, "expires_at": expires_at}
    print_result(shown, signed, json=json)


async def _choose_app(stores: Stores, app_id: str) -> App:
    if not app_id and stores.directory.first_run.exists():
        app_id = read_first_run(stores.directory.first_run).app.id
    if app_id:
        return await find_app(stores, app_id)
    found = await stores.apps.list(limit=2)
    if len(found) != 1:
        raise CommandFailed("Choose an app with --app. `clarion app list` lists the apps.")
    return found[0]
