"""`clarion app`: create and list apps."""

from __future__ import annotations

from cyclopts import App

from clarion.access.provisioning import create_app
from clarion.cli.first_run import AppCredentials, to_json
from clarion.cli.flags import SettingFlags, load_settings
from clarion.data_directory import write_private
from clarion.stores import Stores, open_stores

app = App(name="app")


@app.command
async def create(name: str, bundle_id: str, /, **settings: SettingFlags) -> None:
    """Create an app and print its keys as JSON. The keys cannot be shown again."""
    async with open_stores(load_settings(settings)) as stores:
        print(to_json(await provision_app(stores, name, bundle_id)).decode())


@app.command(name="list")
async def list_apps(**settings: SettingFlags) -> None:
    """List all apps: id, bundle id, name."""
    async with open_stores(load_settings(settings)) as stores:
        for each in await stores.apps.list():
            print(f"{each.id}  {each.bundle_id}  {each.name}")


async def provision_app(stores: Stores, name: str, bundle_id: str) -> AppCredentials:
    """Create an app, and save its private provider key in the data directory."""
    new = await create_app(
        name=name,
        bundle_id=bundle_id,
        apps=stores.apps,
        vault=stores.vault,
        clock=stores.clock,
    )
    path = stores.directory.provider_keys / f"AuthKey_{new.key_id}.p8"
    write_private(path, new.provider_key_pem)
    return AppCredentials(
        id=new.app.id,
        bundle_id=new.app.bundle_id,
        api_key=new.api_key,
        user_secret=new.user_secret,
        team_id=new.app.team_id,
        key_id=new.key_id,
        provider_key_path=str(path.resolve()),
    )
