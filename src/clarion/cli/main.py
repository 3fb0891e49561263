"""The `clarion` command: the command tree, error messages and exit codes.

A command's module is imported when the command runs, so that `clarion --help` does not load the
web server.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from clarion import __version__
from clarion.audit.commands import command
from clarion.errors import ClarionError, CommandFailed
from clarion.system.data_directory import PRIVATE_UMASK

# More than imports make, which stay: most commands are over, and a server is ready, before it.
gc.set_threshold(200_000, 20, 100)

EXIT_FAILED = 1
EXIT_CANNOT_RUN = 2
EXIT_INTERRUPTED = 130

_TAKES_SETTINGS = "Takes the settings of `clarion serve`, such as --data."
_TAKES_DATABASE = "Takes --data and --database."
# By name: the place of a command, whose module is imported when it runs, and its help.
_COMMANDS = {
    "serve": ("serve:serve", "Start the server."),
    "init": (
        "init:init",
        "Create the data directory, the demo app, keys, certificates, and a link for creating the "
        "first administrator. If they already exist, nothing changes. " + _TAKES_SETTINGS,
    ),
    "migrate": (
        "migrate:migrate",
        "Apply missing database migrations. Those that would break nodes of an earlier release "
        "wait until none is connected; with --after it is an error if one is. " + _TAKES_DATABASE,
    ),
    "migrate-data": (
        "migrate_data:migrate_data",
        "Copy everything from SQLite into an empty PostgreSQL database, and verify it. Stop the "
        "server first. If interrupted, run it again: it continues. " + _TAKES_SETTINGS,
    ),
    "doctor": (
        "doctor:doctor",
        "Check everything a server needs. Exits with 1 if there is a fault. " + _TAKES_SETTINGS,
    ),
    "version": ("version:version", "Print the version, and the commit it was built from."),
    "backup": (
        "backup:backup",
        "Write a consistent copy of the database to one file, while servers run. "
        + _TAKES_DATABASE,
    ),
    "restore": (
        "restore:restore",
        "Restore a backup into an empty data directory or database. " + _TAKES_DATABASE,
    ),
    "env": (
        "env:env",
        "Print shell variables for trying the API: the URL, the API key of the demo app, and a "
        'function `api`. Use it as eval "$(clarion env)". ' + _TAKES_SETTINGS,
    ),
    "app": ("app:app", "Create, list, show, change and delete apps."),
    "key": ("keys:key", "Create, list, rotate and revoke API keys."),
    "user-key": ("keys:user_key", "Create, list, rotate and revoke the keys of user tokens."),
    "provider-key": (
        "keys:provider_key",
        "Create, list, rotate and revoke the keys of APNs providers.",
    ),
    "user": ("user:user", "Create, import, export, delete and erase users; sign user tokens."),
    "admin": ("admin:admin", "Create, list, reset, disable and delete administrators."),
    "vault": (
        "vault:app",
        "Replace the key that encrypts secrets in the database, and show the keys in use.",
    ),
    "audit": ("audit:app", "Verify, list and export the audit log."),
    "demo": (
        "demo.command:demo",
        "Fill its own app with users, devices and events, and keep sending events until Ctrl-C. "
        "--remove deletes the app. Needs a running server. " + _TAKES_SETTINGS,
    ),
    "analytics": (
        "analytics:analytics",
        "Print how often something happened in the last minutes, hours or days: events, "
        "decisions, deliveries, reads, clicks and more. " + _TAKES_SETTINGS,
    ),
    "send": (
        "send:send",
        "Push a message to a device as an APNs provider, or to a topic. Prints the message id "
        "and the HTTP status, or why the server refused it. " + _TAKES_SETTINGS,
    ),
    "publish": (
        "publish:publish",
        "Send a text to the devices and users of a topic. Prints the ids of the message and of the "
        "event. " + _TAKES_SETTINGS,
    ),
}

app = App(
    name="clarion",
    version=__version__,
    help="Clarion: a self-hosted notification platform.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False),
)
for _name, (_place, _help) in _COMMANDS.items():
    app.command(f"clarion.cli.{_place}", name=_name, help=_help)

device = App(name="device", help="Run test devices.")
app.command(device)
device.command(
    "clarion.cli.device.listen:listen",
    name="listen",
    help="Register a device, connect it, and print and acknowledge each message. The device is "
    "saved in the data directory: the next run reconnects it and receives what it missed. "
    + _TAKES_SETTINGS,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are one line each, without a traceback."""
    os.umask(PRIVATE_UMASK)
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        _record(arguments)
        result = app(
            arguments,
            result_action="return_value",
            exit_on_error=False,
            print_error=False,
        )
    except CycloptsError as error:
        _report(str(error))
        return EXIT_CANNOT_RUN
    except ClarionError as error:
        _report(error.detail)
        return EXIT_FAILED if isinstance(error, CommandFailed) else EXIT_CANNOT_RUN
    except PermissionError as error:
        _report(
            f"This account may not use {error.filename}. Run the command as the account that owns "
            f"it, or change its owner: chown -R $(id -un) {error.filename}"
        )
        return EXIT_CANNOT_RUN
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def _record(arguments: Sequence[str]) -> None:
    """Let the audit log know what runs: a command that writes something has an entry."""
    names, _, _ = app.parse_commands(arguments)
    if names[:1] != ("serve",):  # its requests have entries of their own
        command.set(".".join(names))


def _report(text: str) -> None:
    for line in text.splitlines():
        print(f"clarion: {line}", file=sys.stderr)
