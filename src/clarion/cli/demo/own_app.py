"""The app of the demo: created once, saved in the data directory, and removed with all its data."""

from __future__ import annotations

from pathlib import Path

import msgspec

from clarion.access import model
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import delete_app, provision_app, read_apps
from clarion.cli.first_run import AppCredentials, to_json
from clarion.errors import StartError
from clarion.settings import Settings
from clarion.system.data_directory import write_private

NAME = "Demo shop"
BUNDLE_ID = "com.example.clarion-demo"


def credentials_file(settings: Settings) -> Path:
    """Return the file in which the keys of the app are saved."""
    return settings.data / "demo-app.json"


async def find_or_create(settings: Settings) -> AppCredentials:
    """Return the keys of the app; it is created if it does not exist."""
    async with open_stores(settings) as stores:
        found, saved = await _find(stores), _read(credentials_file(settings))
        if found is not None and saved is not None and saved.id == found.id:
            return saved
        if found is not None:
            raise StartError(
                f"The app {NAME!r} exists, but its keys in {credentials_file(settings)} do not. "
                "Remove it first: clarion demo --remove"
            )
        made = await provision_app(stores, NAME, BUNDLE_ID)
    write_private(credentials_file(settings), to_json(made))
    return made


async def remove(settings: Settings) -> bool:
    """Delete the app with all its data; False if there is none."""
    async with open_stores(settings) as stores:
        found = await _find(stores)
        if found is not None:
            await delete_app(stores, found)
    credentials_file(settings).unlink(missing_ok=True)
    return found is not None


async def _find(stores: Stores) -> model.App | None:
    apps = await read_apps(stores)
    return next((each for each in apps if each.bundle_id == BUNDLE_ID), None)


def _read(file: Path) -> AppCredentials | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=AppCredentials)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StartError(f"Cannot read {file}. Remove the demo: clarion demo --remove") from error
