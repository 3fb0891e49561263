"""The `clarion` command."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import msgspec
import uvloop
from cyclopts import App, CycloptsError, Parameter

from clarion import __version__
from clarion.cli.options import Flag, ListenOptions, SendOptions
from clarion.errors import ClarionError, CommandFailed, SettingsError
from clarion.settings import describe, flag_of, load
from clarion.telemetry import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from clarion.house import House
    from clarion.settings import Settings

EXIT_FAULT = 2
EXIT_FINDINGS = 1

SettingFlags = Annotated[str, Parameter(show=False)]


def _help_of_settings() -> str:
    lines = ["Settings; each is also an environment variable, or a line in --config FILE (TOML):"]
    for flag, metavar, variable, default, doc in describe():
        lines += ["", f"  {flag} {metavar}  [{variable}]"]
        lines += textwrap.wrap(doc, 70, initial_indent="      ", subsequent_indent="      ")
        lines += [f"      Default: {default}"] if default else []
    return "\n".join(lines)


app = App(
    name="clarion",
    version=__version__,
    help="Clarion: a self-hosted notification platform.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False),
)
app_app = App(name="app", help="Applications that send through Clarion.", help_format="plaintext")
key_app = App(name="key", help="API keys of an app.", help_format="plaintext")
admin_app = App(name="admin", help="The people who run Clarion.", help_format="plaintext")
device_app = App(name="device", help="Devices that get messages.", help_format="plaintext")
for part in (app_app, key_app, admin_app, device_app):
    app.command(part)


def _serve(**settings: SettingFlags) -> int:
    loaded = _load(settings)
    from clarion.app import Server

    async def serve() -> int:
        return await Server(loaded).run()

    return uvloop.run(serve())


def _init(
    *, json: Flag = False, if_needed: Flag = False, greet: Flag = False, **settings: SettingFlags
) -> int:
    from clarion.cli.first_run import AlreadySetUp, initialise
    from clarion.cli.first_run import greet as greeting

    loaded = _load(settings)

    async def work(house: House) -> int:
        try:
            first = await initialise(house, loaded)
        except AlreadySetUp:
            if not if_needed:
                raise
            return 0
        if json:
            print(msgspec.json.format(msgspec.json.encode(first), indent=2).decode())
        elif greet:
            print(greeting(first, str(house.folder.first_run)), flush=True)
        elif not if_needed:
            print(f"Clarion is set up. Its first keys are in {house.folder.first_run}")
        return 0

    return _with_house(loaded, work)


def _migrate(**settings: SettingFlags) -> int:
    loaded = _load(settings)
    from clarion.data_directory import DataDirectory
    from clarion.store.opening import migrate

    async def work() -> int:
        DataDirectory(loaded.data).ensure()
        applied = await migrate(loaded.database_url)
        for title in applied:
            print(f"applied {title}")
        if not applied:
            print("The database is up to date.")
        return 0

    return asyncio.run(work())


def _doctor(**settings: SettingFlags) -> int:
    from clarion.cli.doctor import examine

    findings = asyncio.run(examine(_load(settings)))
    for finding in findings:
        print(f"{finding.state:6} {finding.what:12} {finding.detail}")
    return EXIT_FINDINGS if any(finding.state == "fault" for finding in findings) else 0


app.command(_serve, name="serve", help=f"Start the server.\n\n{_help_of_settings()}")
app.command(
    _init,
    name="init",
    help="Make the data folder, the first administrator, app, keys and certificates. A second "
    "time it changes nothing. Takes the settings of `clarion serve`; --json prints all secrets.",
)
app.command(
    _migrate, name="migrate", help="Bring the database up to date. Takes --data, --database."
)
app.command(_doctor, name="doctor", help="Look at everything a server needs; exit 1 on a fault.")


@app_app.command(name="create")
def _create_app(name: str, bundle_id: str, /, **settings: SettingFlags) -> int:
    """Make an app and print its keys as JSON. They are shown this once."""
    from clarion.access.provisioning import create_app
    from clarion.cli.first_run import describe_app

    async def work(house: House) -> int:
        new = await create_app(
            name=name,
            bundle_id=bundle_id,
            apps=house.apps,
            keys=house.keys,
            vault=house.vault,
            clock=house.clock,
        )
        _print_json(describe_app(house, new))
        return 0

    return _with_house(_load(settings), work)


@app_app.command(name="list")
def _list_apps(**settings: SettingFlags) -> int:
    """List the apps."""

    async def work(house: House) -> int:
        for each in await house.apps.list():
            print(f"{each.id}  {each.bundle_id}  {each.name}")
        return 0

    return _with_house(_load(settings), work)


@key_app.command(name="create")
def _create_key(app_id: str, label: str, /, *scopes: str, **settings: SettingFlags) -> int:
    """Make an API key for an app and print it. Scopes are like events:write; none means all."""
    from clarion.access.issuing import issue_key

    async def work(house: House) -> int:
        if await house.apps.get(app_id) is None:
            _complain(f"There is no app {app_id}; `clarion app list` shows them.")
            return EXIT_FAULT
        now = house.clock.now()
        issued = issue_key(app_id=app_id, label=label, scopes=scopes or ["*"], now=now)
        await house.keys.create(issued.key)
        print(issued.secret.text)
        return 0

    return _with_house(_load(settings), work)


@key_app.command(name="revoke")
def _revoke_key(app_id: str, key_id: str, /, **settings: SettingFlags) -> int:
    """Revoke an API key. Running servers refuse it within two seconds."""

    async def work(house: House) -> int:
        if await house.keys.revoke(app_id, key_id, house.clock.now()) is None:
            _complain(f"The app {app_id} has no key {key_id}.")
            return EXIT_FAULT
        print(f"Revoked {key_id}.")
        return 0

    return _with_house(_load(settings), work)


@admin_app.command(name="create")
def _create_admin(username: str, /, **settings: SettingFlags) -> int:
    """Make an administrator with a random password and print it."""
    from clarion.access.provisioning import create_administrator, new_password

    async def work(house: House) -> int:
        password = new_password()
        await create_administrator(
            username=username,
            password=password,
            administrators=house.administrators,
            clock=house.clock,
        )
        print(password)
        return 0

    return _with_house(_load(settings), work)


def _listen(*, options: ListenOptions | None = None, **settings: SettingFlags) -> int:
    from clarion.cli.devices.listening import listen
    from clarion.cli.installation import find_installation

    chosen, loaded = options or ListenOptions(), _load(settings)
    installation = find_installation(
        loaded, url=chosen.url, gateway_url=chosen.gateway_url, api_key=chosen.api_key
    )
    return uvloop.run(listen(chosen, installation, _own_command("send", settings)))


def _send(*text: str, options: SendOptions | None = None, **settings: SettingFlags) -> int:
    from clarion.cli.installation import find_installation
    from clarion.cli.sending import send

    chosen = options or SendOptions()
    installation = find_installation(_load(settings), url=chosen.url, api_key=chosen.api_key)
    for sent in send(chosen, " ".join(text), installation):
        print(f"{sent.id}  {sent.status} accepted", flush=True)
    return 0


device_app.command(
    _listen,
    name="listen",
    help="Be a device: register, connect, show what arrives and acknowledge it. The device is "
    "remembered in the data folder; the next time it is the same one and gets what it missed. "
    "Takes the settings of `clarion serve`, like --data.",
)
app.command(
    _send,
    name="send",
    help="Push a message to a device as an APNs provider does, or to a topic. Prints the id of "
    "the message and the status of the answer, or why it was refused. Takes the settings of "
    "`clarion serve`, like --data.",
)


def _own_command(name: str, settings: dict[str, str]) -> str:
    """Return how to call another command like this one was called, for people to copy."""
    called = sys.argv[0] if sys.argv[0].endswith("clarion") else "clarion"
    program = "clarion" if shutil.which("clarion") == called else called
    flags = (f"{flag_of(key)} {shlex.quote(value)}" for key, value in settings.items())
    return " ".join((program, name, *flags))


def _load(flags: dict[str, str]) -> Settings:
    settings = load(flags, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    return settings


def _with_house(settings: Settings, work: Callable[[House], Coroutine[None, None, int]]) -> int:
    from clarion.house import open_house

    async def run() -> int:
        async with open_house(settings) as house:
            return await work(house)

    return asyncio.run(run())


def _print_json(card: msgspec.Struct) -> None:
    print(msgspec.json.format(msgspec.json.encode(card), indent=2).decode())


def _complain(sentence: str) -> None:
    print(f"clarion: {sentence}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. Faults are sentences, never tracebacks."""
    try:
        result = app(
            sys.argv[1:] if arguments is None else arguments,
            result_action="return_value",
            exit_on_error=False,
            print_error=False,
        )
    except CycloptsError as error:
        _complain(str(error))
        return EXIT_FAULT
    except SettingsError as error:
        for fault in error.faults:
            _complain(fault)
        return EXIT_FAULT
    except ClarionError as error:
        for line in error.detail.splitlines():
            _complain(line)
        return EXIT_FINDINGS if isinstance(error, CommandFailed) else EXIT_FAULT
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0
