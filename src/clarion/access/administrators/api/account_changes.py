"""Changes to the account of the calling administrator over HTTP."""

from __future__ import annotations

from litestar import get

from clarion.access.administrators.account_changes import find_changes
from clarion.access.administrators.api.callers import signed_in
from clarion.access.administrators.api.sessions import TAGS
from clarion.access.administrators.sql.stores import AdminStores
from clarion.audit.model import ActorKind, Entry
from clarion.audit.port import AuditLog
from clarion.clock import Clock
from clarion.http.callers import ApiRequest
from clarion.http.dependencies import Injected
from clarion.http.views import Timestamp, View


class ChangeActor(View):
    """Who changed an account."""

    kind: ActorKind
    """Who it is."""
    id: str
    """The id of the administrator, or the account of the operating system that ran `clarion`."""
    username: str | None
    """The name of the administrator; null if the actor is not one, or was deleted."""


class AccountChange(View):
    """A change to an account: an entry of the audit log."""

    id: str
    """The id of the entry."""
    created_at: Timestamp
    """When it happened."""
    action: str
    """What was done, like `password.change`."""
    actor: ChangeActor
    """Who did it."""
    address: str | None
    """The address that the request came from; null if it is not known."""
    is_new: bool
    """Whether it happened between the previous sign-in and this one."""


class AccountChangeList(View):
    """The changes to an account, newest first."""

    previous_sign_in_at: Timestamp | None
    """When the administrator signed in before this session; null if it is not known."""
    items: list[AccountChange]
    """The changes, newest first."""


@get("/v1/admin/account-changes", summary="List changes to the account", tags=TAGS)
async def list_account_changes(
    request: ApiRequest,
    admins: Injected[AdminStores],
    audit_log: Injected[AuditLog],
    clock: Injected[Clock],
) -> AccountChangeList:
    """Return the changes to the calling administrator's sign-in and permissions.

    Passwords, second factors, recovery codes, admin API keys, roles and resets of the last 90
    days, changed by anybody.
    """
    caller = signed_in(request)
    sessions = await admins.sessions.list(caller.administrator_id)
    session = next((each for each in sessions if each.id == caller.session_id), None)
    found = await find_changes(audit_log, caller.administrator_id, session, clock.now())
    names = await _find_names(admins, found.entries)
    items = [
        AccountChange.of(
            entry,
            actor=ChangeActor(
                kind=entry.actor_kind, id=entry.actor_id, username=names.get(entry.actor_id)
            ),
            is_new=found.is_new(entry),
        )
        for entry in found.entries
    ]
    return AccountChangeList.of(found, items=items)


async def _find_names(admins: AdminStores, entries: tuple[Entry, ...]) -> dict[str, str]:
    ids = {each.actor_id for each in entries if each.actor_kind is ActorKind.ADMINISTRATOR}
    accounts = [await admins.accounts.get(each) for each in sorted(ids)]
    return {each.id: each.username for each in accounts if each is not None}


ROUTES = (list_account_changes,)
