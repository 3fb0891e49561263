"""`clarion user create` and `import`, through the API of a running server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from clarion.cli.device.output import printable
from clarion.cli.flags import SettingFlags, Switch
from clarion.cli.printing import print_json
from clarion.cli.remote_server import ApiOptions, connect_api
from clarion.cli.user_files import (
    Fault,
    FileFormat,
    UserLine,
    choose_format,
    read_users,
)
from clarion.cli.user_import import Summary, UserImport
from clarion.errors import CommandFailed, StartError, count

_FAULTS_SHOWN = 20
_STANDARD_INPUT = "-"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UserOptions:
    """The fields of a user.

    Parameters
    ----------
    name
        The name.
    email
        The email address; unique within the app.
    phone
        The phone number with its country code.
    language
        The language, like pt-BR.
    timezone
        The time zone, like Europe/Berlin.
    tag
        A tag; may be repeated.

    """

    name: str | None = None
    email: str | None = None
    phone: str | None = None
    language: str | None = None
    timezone: str | None = None
    tag: Annotated[tuple[str, ...], Parameter(negative="")] = ()


def create(
    user_id: str,
    /,
    *,
    json: Switch = False,
    options: UserOptions | None = None,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Create a user, or update the given fields of one that exists.

    Parameters
    ----------
    user_id
        The id that your system gives the user.
    json
        Print the id and what was done as JSON.

    """
    fields = asdict(options or UserOptions())
    given = {name: value for name, value in fields.items() if value and name != "tag"}
    body = {"id": user_id, **given} | ({"tags": fields["tag"]} if fields["tag"] else {})
    summary = Summary()
    with connect_api(server, settings) as client:
        line = UserLine(0, user_id, msgspec.json.encode(body))
        UserImport(client, summary, lambda: None).run([line])
    if summary.refused:
        raise CommandFailed("\n".join(_describe(fault, "") for fault in summary.faults))
    done = "created" if summary.created else "updated"
    as_json = msgspec.json.encode({"id": user_id, "status": done}).decode()
    print(as_json if json else f"{done.title()} {user_id}.")


def import_users(
    file: str = _STANDARD_INPUT,
    /,
    *,
    format: FileFormat | None = None,  # noqa: A002 - the name of the flag
    from_line: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    json: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> int:
    """Create or update the users of a file. Importing a file again changes nothing.

    Parameters
    ----------
    file
        A CSV file whose first line names the columns, or a file with a JSON object on each line.
        Default: standard input.
    format
        csv or jsonl. Default: from the file extension.
    from_line
        Start at this line, to continue an interrupted import.
    json
        Print the summary as JSON.

    """
    kind = choose_format(Path(file), format)
    summary = Summary(next_line=from_line)
    with _open(file) as source:
        connecting = connect_api(server, settings)
        with _progress(source) as show, _advise(summary), connecting as client:
            lines = (each for each in read_users(source, kind) if each.line >= from_line)
            UserImport(client, summary, show).run(lines)
    _print_json(summary) if json else _print(summary)
    return 1 if summary.refused else 0


@contextmanager
def _advise(summary: Summary) -> Iterator[None]:
    """Say how to continue if an import fails in the middle."""
    try:
        yield
    except (CommandFailed, StartError, KeyboardInterrupt) as error:
        done = f"Imported {count(summary.created + summary.updated, 'user')}."
        advice = f"{done} Continue with --from-line {summary.next_line}."
        if isinstance(error, KeyboardInterrupt):
            print(f"clarion: {advice}", file=sys.stderr)
            raise
        raise type(error)(f"{error.detail}\n{advice}") from error


@contextmanager
def _open(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise StartError(f"Cannot read {file}: {error.strerror}.") from error
    with source:
        yield source


@contextmanager
def _progress(source: BinaryIO) -> Iterator[Callable[[], None]]:
    """Show a bar on a terminal; yield the function to call when there is progress."""
    if not (sys.stderr.isatty() and source.seekable()):
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where it is shown
    from rich.progress import Progress  # noqa: PLC0415

    size = source.seek(0, 2)
    source.seek(0)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Importing", total=size)
        yield lambda: bar.update(task, completed=source.tell())


def _print_json(summary: Summary) -> None:
    faults = [fault._asdict() for fault in summary.faults]
    counts = {name: getattr(summary, name) for name in ("created", "updated", "refused")}
    shown = {**counts, "next_line": summary.next_line, "faults": faults}
    print_json(shown)


def _print(summary: Summary) -> None:
    for fault in summary.faults[:_FAULTS_SHOWN]:
        print(f"clarion: {_describe(fault, f'line {fault.line}: ')}", file=sys.stderr)
    if summary.refused > _FAULTS_SHOWN:
        print("clarion: There are more; --json lists up to 1,000.", file=sys.stderr)
    print(f"Created {summary.created:,}, updated {summary.updated:,}, refused {summary.refused:,}.")


def _describe(fault: Fault, place: str) -> str:
    return printable(f"{place}{fault.field + ': ' if fault.field else ''}{fault.reason}")
