"""`clarion init`: the first administrator, app, keys and certificates; and the greeting."""

from __future__ import annotations

import dataclasses
import datetime as dt
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from clarion.access.provisioning import create_administrator, create_app, new_password
from clarion.data_directory import write_private
from clarion.errors import Conflict, StartError
from clarion.http.certificates import DevelopmentTls
from clarion.settings import Settings

if TYPE_CHECKING:
    from clarion.access.provisioning import NewApp
    from clarion.house import House
    from clarion.setting_types import Address

DEMO_BUNDLE_ID = "com.example.demo"
ADMIN_NAME = "admin"


class AlreadySetUp(StartError):
    """The database is set up already, and first-run.json, which kept its first secrets, is gone.
    Make new ones with `clarion app create` and `clarion admin create`.
    """

    code = "already_set_up"

    def __init__(self) -> None:
        super().__init__(" ".join((self.__doc__ or "").split()))


# Who listens on every address is called at the machine's own.
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - looked up, not listened on


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

    A call may be interrupted anywhere: the secrets are written down before the administrator is
    made, and an installation without an administrator is not finished.
    """
    saved = house.folder.first_run
    is_finished = await house.administrators.find(ADMIN_NAME) is not None
    if is_finished and not saved.exists():
        raise AlreadySetUp
    first = _read(saved) if saved.exists() else await _make_app(house, settings)
    if not is_finished:
        await create_administrator(
            username=first.admin.username,
            password=first.admin.password,
            administrators=house.administrators,
            clock=house.clock,
        )
    return msgspec.structs.replace(first, urls=urls_of(settings))


def _read(saved: Path) -> FirstRun:
    return msgspec.json.decode(saved.read_bytes(), type=FirstRun)


async def _make_app(house: House, settings: Settings) -> FirstRun:
    """Make the demo app and write down what can be seen only now."""
    try:
        app = await _create_demo_app(house, DEMO_BUNDLE_ID)
    except Conflict:
        # A call that was interrupted has left one whose keys nobody knows.
        app = await _create_demo_app(house, f"{DEMO_BUNDLE_ID}-{secrets.token_hex(4)}")
    first = _describe(house, settings, app)
    write_private(house.folder.first_run, msgspec.json.format(msgspec.json.encode(first), indent=2))
    return first


async def _create_demo_app(house: House, bundle_id: str) -> NewApp:
    return await create_app(
        name="Demo",
        bundle_id=bundle_id,
        apps=house.apps,
        keys=house.keys,
        vault=house.vault,
        clock=house.clock,
    )


def _describe(house: House, settings: Settings, new: NewApp) -> FirstRun:
    tls = DevelopmentTls(house.folder.tls)
    tls.ensure(dt.datetime.now(dt.UTC))
    return FirstRun(
        admin=AdminCard(ADMIN_NAME, new_password()),
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
    api = f"http://{_reachable(settings.listen)}"
    return Urls(
        api=api,
        tls=f"https://{_reachable(settings.tls_listen)}" if settings.tls_listen else None,
        gateway=f"ws://{_reachable(settings.gateway_listen)}" if settings.gateway_listen else None,
        admin=f"{api}/admin",
    )


def _reachable(address: Address) -> Address:
    return dataclasses.replace(address, host=_LOCAL.get(address.host, address.host))


def greet(first: FirstRun, saved: str) -> str:
    """Return what a newcomer reads when Clarion starts: where to look, and what to try."""
    folder = Path(saved).parent
    data = "" if folder == Settings().data else f" --data {shlex.quote(str(folder))}"
    return f"""
Clarion is ready to run. Your keys are in {saved}

  API docs   {first.urls.api}/docs
  Health     {first.urls.api}/health
{_greet_push(first.urls, first.tls)}
Be a device in a second terminal, and push to it from a third:

  .venv/bin/clarion device listen{data}
  .venv/bin/clarion send{data} "Hello"

If something is amiss, these say what:

  .venv/bin/clarion doctor{data}
  curl {first.urls.api}/health

Your first notification, with curl: put a person, say what happened, read their inbox.

  KEY='Authorization: Bearer {first.app.api_key}'
  curl -H "$KEY" -X PUT {first.urls.api}/v1/users/ana -d '{{"name":"Ana"}}'
  curl -H "$KEY" {first.urls.api}/v1/events \\
       -d '{{"type":"POST_COMMENT","recipient":{{"user_id":"ana"}}}}'
  curl -H "$KEY" {first.urls.api}/v1/users/ana/notifications

Stop with Ctrl-C. The data stays in place; `make run` goes on with it.
"""


def _greet_push(urls: Urls, tls: TlsCard) -> str:
    """Return where devices and providers connect, as far as there are listeners for them."""
    devices = f"  Devices    {urls.gateway}/v1/gateway\n" if urls.gateway else ""
    return devices + (f"  APNs door  {urls.tls}   (trust {tls.ca_path})\n" if urls.tls else "")
