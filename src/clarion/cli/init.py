"""`clarion init`: create the first app, keys and certificates, and a link for an administrator."""

from __future__ import annotations

import contextlib
import datetime as dt
import secrets
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from clarion.access.administrators.invitations import Invitations
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import provision_app
from clarion.cli.first_run import (
    AdminSetup,
    FirstRun,
    TlsFiles,
    Urls,
    admin_url_of,
    read_first_run,
    to_json,
    urls_of,
)
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.saved_keys import find_foreign, find_own, name_database, save
from clarion.demo import DEMO_BUNDLE_ID
from clarion.errors import Conflict, StartError
from clarion.http.certificates import DevelopmentTls
from clarion.http.listeners import check_free
from clarion.settings import Settings
from clarion.store.opening import sqlite_path
from clarion.store.postgres.set_up_lock import set_up_alone


class AlreadySetUp(StartError, code="already_set_up"):
    """The database is set up already, but its first keys are missing."""


async def init(
    *, json: Switch = False, if_needed: Switch = False, greet: Switch = False, **flags: SettingFlags
) -> None:
    """Set up an installation.

    Parameters
    ----------
    json
        Print the link for the first administrator, the demo app and all secrets as JSON.
    if_needed
        For scripts: print no message, and do not fail if first-run.json is missing.
    greet
        Print the URLs of the server and commands to try, for a server that is about to start.

    """
    settings = load_settings(flags)
    if greet:
        # The URLs would lead to the program that has the port.
        check_free(settings.addresses)
    async with open_stores(settings) as stores:
        try:
            first = await initialise(stores, settings)
        except AlreadySetUp:
            if not if_needed:
                raise
            return
        saved = stores.directory.first_run
        if json:
            print(to_json(first).decode())
        elif greet:
            print(greeting(first, saved), flush=True)
        elif not if_needed:
            print(f"Clarion is set up on {first.database.name}. Its keys are in {saved}")
            for path, foreign in find_foreign(stores.directory, first):
                print(f"The keys of {foreign.database.name} are in {path}")


async def initialise(stores: Stores, settings: Settings) -> FirstRun:
    """Set up an installation once; a later call returns what the first one created.

    The call can be interrupted at any point and repeated. It writes the secrets to disk before it
    stores a link for the first administrator, so an installation without either is not complete.
    As long as there is no administrator, each call makes a new link.
    """
    async with _set_up_alone(stores, settings):
        first = await find_own(stores)
        if first is None:
            await _refuse_if_set_up(stores)
            first = await _create(stores, settings)
        invitations = Invitations(stores.admins.links, stores.clock, admin_url_of(settings))
        setup = AdminSetup(await invitations.invite_first())
    return msgspec.structs.replace(first, admin=setup, urls=urls_of(settings))


async def initialise_if_empty(stores: Stores, settings: Settings) -> FirstRun | None:
    """Set up an empty database, and return its keys; None if it is not empty."""
    async with _set_up_alone(stores, settings):
        if await find_own(stores) or await is_set_up(stores) or await stores.apps.list():
            return None
        first = await _create(stores, settings)
        # Marks the database as set up; `clarion init` makes a link that can be used.
        invitations = Invitations(stores.admins.links, stores.clock, admin_url_of(settings))
        await invitations.invite_first()
    return first


async def is_set_up(stores: Stores) -> bool:
    """Whether an earlier run has set up the database, here or on another node."""
    admins = stores.admins
    return await admins.links.is_first_stored() or await admins.accounts.exist()


@contextlib.asynccontextmanager
async def _set_up_alone(stores: Stores, settings: Settings) -> AsyncIterator[None]:
    """Keep others from setting up the same database or directory meanwhile."""
    with stores.directory.set_up_alone():
        if sqlite_path(settings.database_url):
            yield
            return
        async with set_up_alone(settings.database_url):
            yield


async def _refuse_if_set_up(stores: Stores) -> None:
    if not await is_set_up(stores):
        return
    saved = stores.directory.first_run
    why = (
        f"{saved} has keys of {read_first_run(saved).database.name}"
        if saved.exists()
        else f"{saved.name} with its first keys is missing"
    )
    raise AlreadySetUp(
        f"{stores.installation.database} is set up already, but {why}. "
        "Create new ones with `clarion app create` and `clarion admin create`."
    )


async def _create(stores: Stores, settings: Settings) -> FirstRun:
    """Create the demo app and certificates, and save the secrets."""
    try:
        app = await provision_app(stores, "Demo", DEMO_BUNDLE_ID)
    except Conflict:
        # An interrupted call left an app whose secrets were never saved.
        app = await provision_app(stores, "Demo", f"{DEMO_BUNDLE_ID}-{secrets.token_hex(4)}")
    tls = DevelopmentTls(stores.directory.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    first = FirstRun(
        admin=AdminSetup(),
        app=app,
        tls=TlsFiles(str(tls.ca.resolve())),
        urls=urls_of(settings),
        database=name_database(stores),
    )
    save(stores.directory, first)
    return first


def greeting(first: FirstRun, saved: Path) -> str:
    """Return what `make run` prints: the URLs of the server, and commands to try."""
    directory = saved.parent
    data = "" if directory == Settings().data else f" --data {shlex.quote(str(directory))}"
    return f"""
Clarion is set up on {first.database.name}. Your keys are in {saved}

  Dashboard  {first.urls.admin}
  Demo       {first.urls.api}/demo
  API docs   {first.urls.api}/docs
  Guides     {first.urls.api}/docs/start
  Health     {first.urls.api}/health
  Try        .venv/bin/clarion demo{data}   (fills an app with people, devices and events)
{_push_urls(first.urls, first.tls)}{_setup_url(first.admin)}
Run a test device in a second terminal, and send it a message from a third:

  .venv/bin/clarion device listen{data}
  .venv/bin/clarion send{data} "Hello"

Send your first notification: create a user, send an event, read the inbox.

  eval "$(.venv/bin/clarion env{data})"
  api PUT  /v1/users/ana '{{"name":"Ana"}}'
  api POST /v1/events '{{"type":"POST_COMMENT","recipient":{{"user_id":"ana"}}}}'
  api GET  /v1/users/ana/notifications

If something does not work:

  .venv/bin/clarion doctor{data}
  curl {first.urls.api}/health

Press Ctrl-C to stop. Your data is kept; `make run` starts Clarion again.
"""


def _setup_url(admin: AdminSetup) -> str:
    if admin.setup_url is None:
        return ""
    return (
        "\nOpen this link within 24 hours to make yourself the first administrator:\n\n"
        f"  {admin.setup_url}\n"
    )


def _push_urls(urls: Urls, tls: TlsFiles) -> str:
    devices = f"  Devices    {urls.gateway}/v1/gateway\n" if urls.gateway else ""
    return devices + (f"  APNs       {urls.tls}   (CA: {tls.ca_path})\n" if urls.tls else "")
