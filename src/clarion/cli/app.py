"""`clarion app`: create, list, show, change and delete apps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from cyclopts import App, Parameter

from clarion.access import model
from clarion.access.origins import check_origins
from clarion.access.provisioning import check_app_name, check_per_hour, create_app
from clarion.access.views import show_app
from clarion.app.stores import Stores, open_stores
from clarion.cli.first_run import AppCredentials
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import print_json, print_rows
from clarion.errors import CommandFailed, NotFound
from clarion.fields import check_value
from clarion.system.data_directory import write_private

app = App(name="app")
Origins = Annotated[tuple[str, ...], Parameter(negative="")]


@app.command
async def create(
    name: str,
    bundle_id: str,
    /,
    *,
    origin: Origins = (),
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Create an app and print its keys as JSON. The keys cannot be shown again.

    Parameters
    ----------
    origin
        An origin of web pages that may open streams and sockets; may be repeated.
    json
        Has no effect: the output is always JSON.

    """
    del json
    async with open_stores(load_settings(settings)) as stores:
        print_json(await provision_app(stores, name, bundle_id, origin))


@app.command(name="list")
async def list_apps(*, json: Switch = False, **settings: SettingFlags) -> None:
    """List all apps: id, bundle id, name.

    Parameters
    ----------
    json
        Print them as the API shows them.

    """
    async with open_stores(load_settings(settings)) as stores:
        found = await read_apps(stores)
    if json:
        print_json([show_app(each) for each in found])
    elif found:
        print_rows([(each.id, each.bundle_id, each.name) for each in found])


@app.command
async def show(app_id: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """Show an app and its live keys, without their secrets.

    Parameters
    ----------
    json
        Print the app as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        found = await find_app(stores, app_id)
        now = stores.clock.now()
        user_keys = [key for key in await stores.user_keys.list(app_id) if key.is_live(now)]
        provider_keys = [
            each for each in await stores.provider_keys.list(app_id) if each.is_live(now)
        ]
    if json:
        print_json(show_app(found))
        return
    rows = [
        ("id", found.id),
        ("name", found.name),
        ("bundle id", found.bundle_id),
        ("team id", found.team_id),
        ("allowed origins", " ".join(found.allowed_origins) or "none"),
        *_show_limits(found),
        (
            "user keys",
            " ".join(f"{key.kid} ({key.algorithm.value})" for key in user_keys) or "none",
        ),
        ("provider keys", " ".join(key.key_id for key in provider_keys) or "none"),
    ]
    print_rows(rows)


@app.command
async def rename(app_id: str, name: str, /, **settings: SettingFlags) -> None:
    """Change the name of an app."""
    checked = check_value("name", check_app_name, name)
    await _update(settings, app_id, name=checked)
    print(f"Renamed {app_id}.")


@app.command
async def origins(app_id: str, /, *origin: str, **settings: SettingFlags) -> None:
    """Set the origins of web pages that may open streams and sockets; without origins, none may.

    An origin is like https://app.example.com; * means all. Running servers know it within two
    seconds.
    """
    checked = check_value("origin", check_origins, origin)
    await _update(settings, app_id, allowed_origins=checked)
    print("\n".join(checked) or "No page may open streams or sockets of this app.")


@app.command
async def limits(
    app_id: str, user_per_hour: str, category_per_hour: str, /, **settings: SettingFlags
) -> None:
    """Set how many notifications a user gets in an hour, in total and per category.

    More are held. 0 means no limit; `default` means that of the installation, which the settings
    --user-per-hour and --category-per-hour have. Running servers know it within two seconds.
    """
    user = check_value("user_per_hour", _read_limit, user_per_hour)
    category = check_value("category_per_hour", _read_limit, category_per_hour)
    changed = await _update(settings, app_id, user_per_hour=user, category_per_hour=category)
    print_rows(_show_limits(changed))


async def _update(flags: Mapping[str, str], app_id: str, **changes: Any) -> model.App:
    async with open_stores(load_settings(flags)) as stores:
        stores.audit_log.describe(app_id=app_id)
        changed = await stores.apps.update(app_id, **changes)
    if changed is None:
        raise missing(app_id)
    return changed


def _read_limit(text: str) -> int:
    if text == "default":
        return check_per_hour(None)
    if not text.isascii() or not text.isdigit():
        raise ValueError("must be a number, or `default`")
    return check_per_hour(int(text[:10]))


def _show_limits(found: model.App) -> list[tuple[str, str]]:
    limits = {"user per hour": found.user_per_hour, "category per hour": found.category_per_hour}
    return [(name, "default" if each is None else str(each)) for name, each in limits.items()]


@app.command
async def delete(app_id: str, /, *, yes: Switch = False, **settings: SettingFlags) -> None:
    """Delete an app with all its data. It cannot be restored.

    Its keys and connections end within seconds on all running servers, which remove the data in
    the background.

    Parameters
    ----------
    yes
        Do not ask for the name of the app.

    """
    async with open_stores(load_settings(settings)) as stores:
        found = await find_app(stores, app_id)
        if not yes:
            _confirm(found)
        await delete_app(stores, found)
    print(f"Deleted {found.name}.")


async def delete_app(stores: Stores, found: model.App) -> None:
    """Delete an app, and its private provider keys in the data directory."""
    files = [f"AuthKey_{each.key_id}.p8" for each in await stores.provider_keys.list(found.id)]
    stores.audit_log.describe(app_id=found.id)
    if await stores.apps.delete(found.id, stores.clock.now()) is None:
        raise missing(found.id)
    for file in files:
        with suppress(OSError):
            (stores.directory.provider_keys / file).unlink(missing_ok=True)


def _confirm(found: model.App) -> None:
    """Ask for the name; `CommandFailed` if another is given, or none."""
    print(f"This deletes the app {found.name!r} with all its data.", file=sys.stderr)
    print("Type its name to confirm: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().rstrip("\n") != found.name:
        raise CommandFailed("That is not the name of the app. Nothing was deleted.")


async def read_apps(stores: Stores) -> list[model.App]:
    found: list[model.App] = []
    while page := await stores.apps.list(found[-1].id if found else ""):
        found += page
    return found


async def find_app(stores: Stores, app_id: str) -> model.App:
    """Return an app; `NotFound` says how to find one."""
    found = await stores.apps.get(app_id)
    if found is None:
        raise missing(app_id)
    return found


def missing(app_id: str) -> NotFound:
    return NotFound(f"There is no app {app_id}. `clarion app list` lists the apps.")


async def provision_app(
    stores: Stores, name: str, bundle_id: str, origins: tuple[str, ...] = ()
) -> AppCredentials:
    """Create an app, and save its private provider key in the data directory."""
    new = await create_app(
        name=name,
        bundle_id=bundle_id,
        apps=stores.apps,
        vault=stores.vault,
        clock=stores.clock,
        allowed_origins=origins,
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
