"""`clarion key`: create and revoke API keys."""

from __future__ import annotations

from cyclopts import App

from clarion.access.keys import issue_key
from clarion.cli.flags import SettingFlags, load_settings
from clarion.errors import NotFound
from clarion.stores import open_stores

key = App(name="key")


@key.command
async def create(app_id: str, label: str, /, *scopes: str, **settings: SettingFlags) -> None:
    """Create an API key for an app and print it. The key cannot be shown again.

    Scopes are like events:write. Without scopes the key may do everything.
    """
    async with open_stores(load_settings(settings)) as stores:
        if await stores.apps.get(app_id) is None:
            raise NotFound(f"There is no app {app_id}. `clarion app list` lists the apps.")
        now = stores.clock.now()
        issued = issue_key(app_id=app_id, label=label, scopes=scopes or ["*"], now=now)
        stores.audit_log.describe(app_id=app_id, key_id=issued.key.id)
        await stores.keys.create(issued.key)
        print(issued.secret.text)


@key.command
async def revoke(app_id: str, key_id: str, /, **settings: SettingFlags) -> None:
    """Revoke an API key. Running servers refuse it within two seconds.

    The id of a key is the part between the underscores of ck_<id>_<secret>.
    """
    async with open_stores(load_settings(settings)) as stores:
        stores.audit_log.describe(app_id=app_id, key_id=key_id)
        if await stores.keys.revoke(app_id, key_id, stores.clock.now()) is None:
            raise NotFound(f"The app {app_id} has no key {key_id}.")
        print(f"Revoked {key_id}.")
