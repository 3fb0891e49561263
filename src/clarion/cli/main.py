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

app = App(
    name="clarion",
    version=__version__,
    help="Clarion: a self-hosted notification platform.",
    help_format="plaintext",
    default_parameter=Parameter(show_default=False),
)
device = App(name="device", help="Run test devices.")

app.command("clarion.cli.serve:serve", name="serve", help="Start the server.")
app.command(
    "clarion.cli.init:init",
    name="init",
    help="Create the data directory, the demo app, keys, certificates, and a link with which the "
    f"first administrator is made. If they already exist, nothing changes. {_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.migrate:migrate",
    name="migrate",
    help="Apply missing database migrations. What nodes of an earlier release cannot live with "
    "waits until none is connected; with --after it is an error if one is. Takes --data and "
    "--database.",
)
app.command(
    "clarion.cli.migrate_data:migrate_data",
    name="migrate-data",
    help="Copy everything from SQLite into an empty PostgreSQL database, and verify it. Stop the "
    "server first. If it is interrupted, run it again: it goes on where it was. "
    f"{_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.doctor:doctor",
    name="doctor",
    help=f"Check everything a server needs. Exits with 1 if there is a fault. {_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.version:version",
    name="version",
    help="Print the version, and the commit it was built from.",
)
app.command(
    "clarion.cli.backup:backup",
    name="backup",
    help="Write a consistent copy of the database to one file, while servers run. Takes --data and "
    "--database.",
)
app.command(
    "clarion.cli.restore:restore",
    name="restore",
    help="Restore a backup into a data directory or database where nothing is. Takes --data and "
    "--database.",
)
app.command(
    "clarion.cli.env:env",
    name="env",
    help="Print shell variables for trying the API: the URL, the API key of the demo app, and a "
    f'function `api`. Use it as eval "$(clarion env)". {_TAKES_SETTINGS}',
)
app.command("clarion.cli.app:app", name="app", help="Create, list, show, change and delete apps.")
app.command("clarion.cli.keys:key", name="key", help="Create, list, rotate and revoke API keys.")
app.command(
    "clarion.cli.keys:user_key",
    name="user-key",
    help="Create, list, rotate and revoke the keys of user tokens.",
)
app.command(
    "clarion.cli.keys:provider_key",
    name="provider-key",
    help="Create, list, rotate and revoke the keys of APNs providers.",
)
app.command(
    "clarion.cli.user:user",
    name="user",
    help="Create, import, export, delete and erase users; sign user tokens.",
)
app.command(
    "clarion.cli.admin:admin",
    name="admin",
    help="Create, list, reset, disable and delete administrators.",
)
app.command(
    "clarion.cli.vault:app",
    name="vault",
    help="Replace the key that encrypts secrets in the database, and show the keys in use.",
)
app.command(
    "clarion.cli.audit:app",
    name="audit",
    help="Verify, list and export the audit log.",
)
app.command(
    "clarion.cli.demo.command:demo",
    name="demo",
    help="Fill an app of its own with people, devices and events, and let things happen there "
    f"until Ctrl-C. --remove deletes it. Needs a running server. {_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.analytics:analytics",
    name="analytics",
    help="Print how often something happened in the last minutes, hours or days: events, "
    f"decisions, deliveries, reads, clicks and more. {_TAKES_SETTINGS}",
)
app.command(device)
device.command(
    "clarion.cli.device.listen:listen",
    name="listen",
    help="Register a device, connect it, and print and acknowledge each message. The device is "
    "saved in the data directory: the next run reconnects it and receives what it missed. "
    f"{_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.send:send",
    name="send",
    help="Push a message to a device as an APNs provider, or to a topic. Prints the message id "
    f"and the HTTP status, or why the server refused it. {_TAKES_SETTINGS}",
)
app.command(
    "clarion.cli.publish:publish",
    name="publish",
    help="Send a text to the devices and the people that follow a topic. Prints the ids of the "
    f"message and of the event. {_TAKES_SETTINGS}",
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
