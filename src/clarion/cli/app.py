"""`clarion app`: create and list apps."""

from __future__ import annotations

from cyclopts import App

from clarion.cli.first_run import provision_app, to_json
from clarion.cli.flags import SettingFlags, load_settings
from clarion.stores import open_stores

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
