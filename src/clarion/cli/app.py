"""`clarion app`: create and list apps."""

from __future__ import annotations

from cyclopts import App

from clarion.access.provisioning import create_app
from clarion.cli.first_run import save_credentials, to_json
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.stores import Stores, run_with_stores

app = App(name="app")


@app.command
def create(name: str, bundle_id: str, /, **settings: SettingFlags) -> None:
    """Create an app and print its keys as JSON. The keys cannot be shown again."""

    async def work(stores: Stores) -> None:
        new = await create_app(
            name=name,
            bundle_id=bundle_id,
            apps=stores.apps,
            keys=stores.keys,
            vault=stores.vault,
            clock=stores.clock,
        )
        print(to_json(save_credentials(stores.folder, new)).decode())

    run_with_stores(load_settings(settings), work)


@app.command(name="list")
def list_apps(**settings: SettingFlags) -> None:
    """List all apps: id, bundle id, name."""

    async def work(stores: Stores) -> None:
        for each in await stores.apps.list():
            print(f"{each.id}  {each.bundle_id}  {each.name}")

    run_with_stores(load_settings(settings), work)
