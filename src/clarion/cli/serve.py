"""`clarion serve`: run the server until it is stopped."""

from __future__ import annotations

import textwrap

import uvloop
from cyclopts import App

from clarion.app import Server
from clarion.cli.first_run import read_first_run
from clarion.cli.flags import SettingFlags, load_settings
from clarion.cli.init import initialise_if_empty
from clarion.cli.saved_keys import find_foreign, find_own
from clarion.privileges import change_account
from clarion.processes.parent import ProcessGroup
from clarion.settings import Settings, describe
from clarion.stores import Stores
from clarion.telemetry.logs import get_logger


def _describe_settings() -> str:
    lines = ["Settings. Each is also an environment variable and a line in --config FILE (TOML):"]
    for flag, metavar, variable, default, doc in describe():
        lines += ["", f"  {flag} {metavar}  [{variable}]"]
        lines += textwrap.wrap(doc, 70, initial_indent="      ", subsequent_indent="      ")
        lines += [f"      Default: {default}"] if default else []
    return "\n".join(lines)


serve = App(name="serve", help_epilogue=_describe_settings())


@serve.default
def _serve(**settings: SettingFlags) -> int:
    loaded = load_settings(settings)
    change_account(loaded.user, loaded.data)

    async def run() -> int:
        count = loaded.process_count
        server = Server(loaded, set_up) if count == 1 else ProcessGroup(loaded, count)
        return await server.run()

    return uvloop.run(run())


async def set_up(stores: Stores, settings: Settings) -> None:
    """Set up a database in which nothing is, and note which keys on disk are of other databases."""
    log, saved = get_logger(), stores.directory.first_run
    database = stores.installation.database
    if own := await initialise_if_empty(stores, settings):
        advice = "`clarion init` prints a link for the first administrator"
        log.info("set_up", database=database, keys=str(saved), advice=advice)
    else:
        own = await find_own(stores)
    foreign = find_foreign(stores.directory, own)
    stores.foreign_keys = {each.app.api_key: each.database_name for _, each in foreign}
    if own is None and saved.exists():
        log.warning(
            "keys_of_another_database",
            database=database,
            keys=str(saved),
            keys_are_for=read_first_run(saved).database_name,
            advice="Create new keys with `clarion app create`",
        )
