"""What a server does with its database before it is used."""

from __future__ import annotations

from clarion.app.stores import Stores
from clarion.cli.first_run import read_first_run
from clarion.cli.init import initialise_if_empty
from clarion.cli.saved_keys import find_foreign, find_own
from clarion.settings import Settings
from clarion.telemetry.logs import get_logger


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
    stores.foreign_keys = {each.app.api_key: each.database.name for _, each in foreign}
    if own is None and saved.exists():
        log.warning(
            "keys_of_another_database",
            database=database,
            keys=str(saved),
            keys_are_for=read_first_run(saved).database.name,
            advice="Create new keys with `clarion app create`",
        )
