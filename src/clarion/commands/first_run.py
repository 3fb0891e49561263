"""`clarion init`: the first administrator, app, keys and certificates; and the greeting."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from clarion.access.provisioning import create_administrator, create_app
from clarion.errors import StartError
from clarion.serving.certificates import DevelopmentTls
from clarion.serving.files import write_private

if TYPE_CHECKING:
    from clarion.access.provisioning import NewAdministrator, NewApp
    from clarion.app import House
    from clarion.settings import Settings

DEMO_BUNDLE_ID = "com.example.demo"
ADMIN_NAME = "admin"


class AdminCard(msgspec.Struct):
    """How the first administrator logs in."""

    username: str
    password: str


class AppCard(msgspec.Struct):
    """How an application speaks to Clarion."""

    id: str
    bundle_id: str
    api_key: str
    user_secret: str
    team_id: str
    key_id: str
    provider_key_path: str


class TlsCard(msgspec.Struct):
    """What clients must trust."""

    ca_path: str


class Urls(msgspec.Struct):
    """Where Clarion answers."""

    api: str
    tls: str | None
    gateway: str | None
    admin: str


class FirstRun(msgspec.Struct):
    """Everything that `clarion init --json` prints."""

    admin: AdminCard
    app: AppCard
    tls: TlsCard
    urls: Urls


async def initialise(house: House, settings: Settings) -> FirstRun:
    """Set an empty installation up, once; a later call returns what the first one made.

    An interrupted call left no `first-run.json`, so the next one goes on: whoever is there already
    is not made again, and what cannot be shown any more is said.
    """
    saved = house.folder.first_run
    if saved.exists():
        first = msgspec.json.decode(saved.read_bytes(), type=FirstRun)
        return msgspec.structs.replace(first, urls=urls_of(settings))
    if await house.administrators.find(ADMIN_NAME):
        msg = (
            "This database is set up already, and first-run.json, which kept its first secrets, "
            "is not in the data folder. Make new ones with `clarion app create` and "
            "`clarion admin create`."
        )
        raise StartError(msg)
    app = await create_app(
        name="Demo",
        bundle_id=DEMO_BUNDLE_ID,
        apps=house.apps,
        keys=house.keys,
        vault=house.vault,
        clock=house.clock,
    )
    admin = await create_administrator(
        username=ADMIN_NAME, administrators=house.administrators, clock=house.clock
    )
    first = _describe(house, settings, app, admin)
    write_private(saved, msgspec.json.format(msgspec.json.encode(first), indent=2))
    return first


def _describe(house: House, settings: Settings, new: NewApp, admin: NewAdministrator) -> FirstRun:
    tls = DevelopmentTls(house.folder.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    return FirstRun(
        admin=AdminCard(admin.username, admin.password),
        app=describe_app(house, new),
        tls=TlsCard(str(tls.ca.resolve())),
        urls=urls_of(settings),
    )


def describe_app(house: House, new: NewApp) -> AppCard:
    """Keep the private half of the provider key beside the database, and return the card."""
    path = house.folder.provider_keys / f"AuthKey_{new.key_id}.p8"
    write_private(path, new.provider_key_pem)
    return AppCard(
        id=new.app.id,
        bundle_id=new.app.bundle_id,
        api_key=new.api_key,
        user_secret=new.user_secret,
        team_id=new.app.team_id,
        key_id=new.key_id,
        provider_key_path=str(path.resolve()),
    )


def urls_of(settings: Settings) -> Urls:
    """Return where the listeners answer."""
    api = f"http://{settings.listen}"
    return Urls(
        api=api,
        tls=f"https://{settings.tls_listen}" if settings.tls_listen else None,
        gateway=f"ws://{settings.gateway_listen}" if settings.gateway_listen else None,
        admin=f"{api}/admin",
    )


def greet(first: FirstRun, saved: str) -> str:
    """Return what a newcomer reads when Clarion starts: where to look, and what to try."""
    return f"""
Clarion is ready to run. Your keys are in {saved}

  Health     {first.urls.api}/health
  API docs   {first.urls.api}/docs
  Devices    {first.urls.gateway}/v1/gateway
  APNs door  {first.urls.tls}   (trust {first.tls.ca_path})

Try it from a second terminal:

  curl {first.urls.api}/health
  curl -H 'Authorization: Bearer {first.app.api_key}' {first.urls.api}/v1/caller

Stop with Ctrl-C. The data stays in place; `make run` goes on with it.
"""
