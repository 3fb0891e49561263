"""`clarion audit`: verify, list and export the audit log."""

from __future__ import annotations

import sys

from cyclopts import App

from clarion.app.stores import Stores, open_stores
from clarion.audit.log_file import LogFile, write_line
from clarion.audit.model import Entry, Filter
from clarion.audit.verification import read_chain, verify_anchor, verify_chain, verify_file
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import count_entries
from clarion.clock import to_rfc3339
from clarion.errors import CommandFailed, FieldFault, InvalidFields
from clarion.http.shapes import read_moment
from clarion.pages import parse_number

app = App(name="audit")
_MOST = 10_000
_PAGE = 100


@app.command
async def verify(*, anchor: str = "", **settings: SettingFlags) -> None:
    """Verify the chain of entries and its file. Exits with 1 and names the first fault.

    Prints the last number and its link. Keep them on another machine: with them the next run also
    finds whether the last entries were removed from the store and from the file.

    Parameters
    ----------
    anchor
        A number and link that an earlier run has printed, as NUMBER:LINK.

    """
    loaded = load_settings(settings)
    async with open_stores(loaded) as stores:
        log, path = stores.audit_log, loaded.audit_log_path
        await log.link_waiting()
        verified = await verify_chain(log.chain, log.keys)
        fault = verified.fault
        if fault is None and path is not None:
            fault = await verify_file(LogFile(path), log.chain, log.keys)
        if fault is None and anchor:
            fault = await verify_anchor(log.chain, *_read_anchor(anchor))
    if fault is not None:
        raise CommandFailed(f"The audit log is not as it was written: {fault}.")
    print(f"{count_entries(verified.last - verified.first + 1)}.")
    print(f"{verified.last}:{verified.link}")


@app.command(name="list")
async def list_entries(
    *,
    app_id: str | None = None,
    action: str | None = None,
    actor: str | None = None,
    user: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int = 20,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """List the newest entries: time, number, action, result, actor, app and subject.

    Parameters
    ----------
    app_id
        Only entries of this app; needed for --user.
    action
        Only entries with this action, like key.create.
    actor
        Only entries of this API key, administrator or account.
    user
        Only entries about this user.
    since
        A time (RFC 3339).
    until
        A time (RFC 3339), excluded.
    limit
        How many, at most 10,000.
    json
        Print lines of JSON.

    """
    if user is not None and app_id is None:
        raise InvalidFields(FieldFault("--user", "needs --app-id"))
    wanted = Filter(
        app_id=app_id,
        action=action,
        actor_id=actor,
        user_id=user,
        since=read_moment(since, "--since") or 0,
        until=read_moment(until, "--until"),
    )
    async with open_stores(load_settings(settings)) as stores:
        for entry in await _find(stores, wanted, min(limit, _MOST)):
            print(write_line(entry).decode().strip() if json else _describe(entry))


@app.command
async def export(*, after: int = 0, **settings: SettingFlags) -> None:
    """Print all entries as lines of JSON, in order, in the format of the file.

    Parameters
    ----------
    after
        Only entries after this number.

    """
    async with open_stores(load_settings(settings)) as stores:
        await stores.audit_log.link_waiting()
        async for entry in read_chain(stores.audit_log.chain, after):
            sys.stdout.buffer.write(write_line(entry))
    sys.stdout.flush()


async def _find(stores: Stores, wanted: Filter, limit: int) -> list[Entry]:
    await stores.audit_log.link_waiting()
    found: list[Entry] = []
    after: str | None = None
    while len(found) < limit:
        size = min(_PAGE, limit - len(found))
        page = await stores.audit_log.list(wanted, after=after, limit=size)
        found += page.items
        after = page.next
        if after is None:
            break
    return found


def _describe(entry: Entry) -> str:
    target = " ".join(f"{name}={value}" for name, value in entry.target.items())
    result = entry.result if entry.reason is None else f"{entry.result} ({entry.reason})"
    parts = (
        to_rfc3339(entry.created_at),
        str(entry.sequence),
        entry.action,
        result,
        f"{entry.actor_kind}:{entry.actor_id}",
        entry.app_id or "-",
        " ".join(filter(None, (entry.subject, target))),
    )
    return "  ".join(parts).rstrip()


def _read_anchor(text: str) -> tuple[int, str]:
    number, _, link = text.partition(":")
    sequence = parse_number(number)
    if sequence is None or not link:
        raise InvalidFields(FieldFault("--anchor", "must be NUMBER:LINK, as `verify` prints it"))
    return sequence, link
