"""The audit log over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from litestar import get
from litestar.params import Parameter

from clarion.access.model import AdminCaller, Role, Scope
from clarion.access.port import AdminStores
from clarion.audit.model import ActorKind, AuditResult, Entry, Filter
from clarion.audit.sql import AuditLog
from clarion.errors import FieldFault, InvalidFields
from clarion.fields import NO_CONTROLS, documented, is_plain
from clarion.http.callers import ApiRequest, admin_of, app_of, caller_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit, Moment
from clarion.http.shapes import Items, check_limit, read_moment
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT

Plain = Annotated[str, documented(pattern=NO_CONTROLS)]
VERIFIED_LIMIT = 1_000


class AuditActor(View):
    """Who acted. `id` is that of the API key or administrator, or the pseudonym of a user."""

    kind: ActorKind
    """Who it is."""
    id: str
    """The id of the API key or administrator, or the pseudonym of a user."""
    name: str | None
    """The username of the administrator as it is now; null of others, and for API keys of apps."""


class AuditEntryView(View):
    """An entry of the audit log.

    `sequence` is its number in the chain, and `link` connects it with the entry before it.
    `subject` is the pseudonym of the user it is about.
    """

    id: str
    """The id of the entry."""
    sequence: int
    """Its number in the chain."""
    created_at: Timestamp
    """When it happened."""
    app_id: str | None
    """The app it is about; null: the installation."""
    action: str
    """What was done, like `key.create`."""
    result: AuditResult
    """Whether it was done."""
    reason: str | None
    """Why it was refused or failed; null if it was done."""
    actor: AuditActor
    """Who did it."""
    subject: str | None
    """The pseudonym of the user it is about; null if it is about none."""
    target: dict[str, str]
    """What it was done to, by kind, like `key_id`."""
    address: str | None
    """The address that the request came from."""
    request_id: str | None
    """The id of the request, which is also in the log of the server."""
    node: str
    """The node that answered."""
    link: str
    """A keyed hash that connects the entry with the one before it."""


class AuditVerificationView(View):
    """Which entries were verified. `fault` is the first that was found, null if there is none.

    `link` is that of the last entry: with its number, it is an anchor for `clarion audit verify`.
    """

    first: int
    """The number of the first entry that was verified."""
    last: int
    """The number of the last one."""
    link: str
    """The keyed hash of the last one."""
    fault: str | None
    """What is wrong, as `clarion audit verify` says it; null if nothing is."""


@get("/v1/audit", summary="List audit entries", tags=["Audit"])
async def list_entries(  # noqa: PLR0913, PLR0917 - each is a parameter of the request
    request: ApiRequest,
    audit_log: Injected[AuditLog],
    admins: Injected[AdminStores],
    action: Annotated[Plain | None, Parameter(description="An action, like `key.create`.")] = None,
    actor_id: Annotated[
        Plain | None, Parameter(description="The id of an API key or administrator.")
    ] = None,
    user_id: Annotated[
        Plain | None, Parameter(description="Only entries about the user with this id.")
    ] = None,
    since: Moment = None,
    until: Moment = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[AuditEntryView]:
    """Return the entries of the calling app, newest first; `until` is excluded.

    An administrator with a role for all apps gets the entries of all apps and of the installation
    if the request has no `Clarion-App`.
    """
    app_id = _find_app(request)
    if user_id is not None and app_id is None:
        raise InvalidFields(FieldFault("user_id", "needs an app: send the header Clarion-App"))
    wanted = Filter(
        app_id=app_id,
        action=_check("action", action),
        actor_id=_check("actor_id", actor_id),
        user_id=_check("user_id", user_id),
        since=read_moment(since, "since") or 0,
        until=read_moment(until, "until"),
    )
    await audit_log.link_waiting()  # what the caller did before this is in the list
    page = await audit_log.list(wanted, after=after, limit=check_limit(limit))
    # The key of an app does not learn who runs the installation.
    is_admin = isinstance(caller_of(request), AdminCaller)
    names = await _find_names(admins, page.items) if is_admin else {}
    return Items([_view(entry, names.get(entry.actor_id)) for entry in page.items], page.next)


@get("/v1/audit/verification", summary="Verify the newest audit entries", tags=["Audit"])
async def verify(request: ApiRequest, audit_log: Injected[AuditLog]) -> AuditVerificationView:
    """Verify that the newest 1,000 entries are unchanged, and that none is missing.

    Needs a role for all apps. `clarion audit verify` verifies all of them, and the file.
    """
    admin_of(request, Role.VIEWER)
    await audit_log.link_waiting()
    return AuditVerificationView.of(await audit_log.verify_newest(VERIFIED_LIMIT))


def _view(entry: Entry, name: str | None) -> AuditEntryView:
    return AuditEntryView.of(
        entry,
        app_id=entry.app_id or None,
        actor=AuditActor(kind=entry.actor_kind, id=entry.actor_id, name=name),
    )


async def _find_names(admins: AdminStores, entries: Iterable[Entry]) -> dict[str, str]:
    """Return the usernames of the administrators of a page, as far as they still exist."""
    ids = {each.actor_id for each in entries if each.actor_kind is ActorKind.ADMINISTRATOR}
    accounts = [await admins.accounts.get(each) for each in sorted(ids)]
    return {each.id: each.username for each in accounts if each is not None}


def _find_app(request: ApiRequest) -> str | None:
    """Return the app whose entries the caller may see; None: all."""
    caller = caller_of(request)
    if isinstance(caller, AdminCaller) and caller.app_id is None:
        admin_of(request, Role.VIEWER)
        return None
    return app_of(request, Scope.AUDIT_READ).app_id


def _check(field: str, text: str | None) -> str | None:
    if text is not None and not is_plain(text):
        raise InvalidFields(FieldFault(field, "must not contain control characters"))
    return text


ROUTES = (list_entries, verify)
