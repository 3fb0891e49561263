"""`clarion admin`: create administrators."""

from __future__ import annotations

from cyclopts import App

from clarion.access.provisioning import create_administrator, new_password
from clarion.cli.flags import SettingFlags, load_settings
from clarion.stores import open_stores

admin = App(name="admin")


@admin.command
async def create(username: str, /, **settings: SettingFlags) -> None:
    """Create an administrator with a random password and print the password."""
    async with open_stores(load_settings(settings)) as stores:
        password = new_password()
        await create_administrator(
            username=username,
            password=password,
            administrators=stores.administrators,
            clock=stores.clock,
        )
        print(password)
