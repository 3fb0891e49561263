"""Deleting, restoring, erasing and exporting users over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from litestar import Response, delete, get, post
from litestar.params import Parameter
from litestar.types import ASGIApp
from msgspec import UNSET, Meta, Struct, UnsetType

from clarion.access.model import Scope
from clarion.audit.port import AuditLog
from clarion.clock import Clock, to_rfc3339
from clarion.errors import Conflict, NotFound, existing
from clarion.fields import UserId, is_plain
from clarion.http.callers import ApiRequest, app_of, owner_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.parts import Parts
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_limit
from clarion.http.views import Timestamp, View
from clarion.pages import PAGE_DEFAULT
from clarion.people.active_users import ActiveUsers
from clarion.people.api.shapes import UserView, view_user
from clarion.people.erasure.eraser import DAY_MS, Eraser
from clarion.people.erasure.export import write_export
from clarion.people.erasure.export_limits import ExportLimits
from clarion.people.erasure.model import Erasure, ErasureCause, ErasureStatus
from clarion.people.erasure.sql.erasures import Erasures
from clarion.people.erasure.sql.exports import Exports

_TAGS = ("Users",)
_NOTHING = "Nothing is stored about this user."
Hard = Annotated[
    bool, Parameter(description="Erase everything about the user now; it cannot be undone.")
]
IncludeDeleted = Annotated[bool, Parameter(description="Also if the user was deleted.")]

ReceiptId = Annotated[
    str, Meta(description="The id of the receipt, from the response to the erasure.")
]


class DeletedUser(View):
    """A user who was deleted, and until when they can be restored."""

    id: str
    """The id that your application gave the user."""
    deleted_at: Timestamp
    """When the user was deleted."""
    restorable_until: Timestamp
    """Until when the user can be restored; then everything is erased."""


class ErasureReceipt(View):
    """What an erasure has removed. It contains no personal data.

    `status` is `running` while data is being removed, then `erased`. `user_hash` is a keyed hash:
    the same user id has the same hash in this app. `removed` counts rows by table.
    """

    receipt_id: str
    """The id with which the erasure is looked up."""
    status: Literal["running", "erased"]
    """`running` while data is being removed, then `erased`."""
    cause: ErasureCause
    """Why the user was erased."""
    user_hash: str
    """A keyed hash of the user id: the same id has the same hash in this app."""
    removed: dict[str, int]
    """How many rows were removed, by table."""
    requested_at: Timestamp
    """When the erasure was requested."""
    completed_at: Timestamp | None
    """When all was removed; null while it runs."""


class UserExport(Struct):
    """Everything that is stored about a user. Secrets are left out.

    `user` and `inbox` are left out if there is none: an app may use an id before it creates the
    user, or never. Each notification has its deliveries and attempts. `messages` are those to the
    user's devices, `events` those that name the user.
    """

    user_id: str
    """The id that your application gave the user."""
    exported_at: Timestamp
    """When the export was written."""
    tickets: list[dict[str, Any]]
    """Tickets for streams that were not used yet."""
    followed_topics: list[dict[str, Any]]
    """The topics that the user follows."""
    notifications: list[dict[str, Any]]
    """The notifications, with their deliveries and attempts."""
    devices: list[dict[str, Any]]
    """The devices of the user."""
    former_devices: list[dict[str, Any]]
    """When devices belonged to the user that no longer do."""
    messages: list[dict[str, Any]]
    """The messages to the devices of the user."""
    subscriptions: list[dict[str, Any]]
    """The topics that the devices subscribe to."""
    push_endpoints: list[dict[str, Any]]
    """The Web Push endpoints of the devices."""
    feedback: list[dict[str, Any]]
    """Tokens of the devices that are no longer valid."""
    jobs: list[dict[str, Any]]
    """Work for the user that is queued."""
    events: list[dict[str, Any]]
    """The events to this user. Of those to others that name the user as actor or target, only
    that is shown.
    """
    dedupe_keys: list[dict[str, Any]]
    """Dedupe keys of events to this user."""
    limit_counts: list[dict[str, Any]]
    """What was counted against rate limits."""
    idempotency_keys: list[dict[str, Any]]
    """Stored responses to requests about this user."""
    user: dict[str, Any] | UnsetType = UNSET
    """The user with all fields; left out if there is none."""
    inbox: dict[str, Any] | UnsetType = UNSET
    """The state of the inbox; left out if there is none."""


def view_receipt(erasure: Erasure) -> ErasureReceipt:
    is_running = erasure.status is ErasureStatus.RUNNING
    return ErasureReceipt.of(
        erasure,
        receipt_id=erasure.id,
        status="running" if is_running else "erased",
        user_hash=erasure.user_hash.hex(),
        removed=erasure.counts,
    )


@delete(
    "/v1/users/{user_id:str}",
    summary="Delete a user",
    tags=_TAGS,
    status_code=200,
    responses={202: describe_response(ErasureReceipt, "The user is being erased.")},
)
async def delete_user(
    request: ApiRequest,
    user_id: UserId,
    eraser: Injected[Eraser],
    audit_log: Injected[AuditLog],
    hard: Hard = False,  # noqa: FBT002 - a parameter of the query
) -> Response[DeletedUser | ErasureReceipt]:
    """Delete a user, who can be restored for some days; or erase them with `hard=true`.

    Nothing is sent to a deleted user, and their data cannot be read or used. An erasure removes
    everything about the user and returns its receipt: 200 when everything is removed, 202 if
    that takes longer. In either case nothing more is sent.
    """
    app_id, user_id = owner_of(request, user_id, Scope.USERS_WRITE)
    audit_log.describe(erased=str(hard).lower())
    if hard:
        erasure = await eraser.erase(app_id, user_id)
        is_running = erasure.status is ErasureStatus.RUNNING
        return Response(view_receipt(erasure), status_code=202 if is_running else 200)
    user = await eraser.delete(app_id, user_id)
    until = (user.deleted_at or 0) + eraser.kept_days * DAY_MS
    view = DeletedUser.of(user, restorable_until=to_rfc3339(until))
    return Response(view, status_code=200)


@post(
    "/v1/users/{user_id:str}/restore",
    summary="Restore a deleted user",
    tags=_TAGS,
    status_code=200,
    errors=(Conflict,),
)
async def restore_user(request: ApiRequest, user_id: UserId, eraser: Injected[Eraser]) -> UserView:
    """Restore a user. 409 if another user has taken the email address: change that user first."""
    return view_user(await eraser.restore(*owner_of(request, user_id, Scope.USERS_WRITE)))


@get(
    ["/v1/users/{user_id:str}/export", "/v1/me/export"],
    summary="Export a user",
    tags=_TAGS,
    responses={200: describe_response(UserExport, "Everything about the user.")},
)
async def export_user(
    request: ApiRequest,
    exports: Injected[Exports],
    export_limits: Injected[ExportLimits],
    active_users: Injected[ActiveUsers],
    clock: Injected[Clock],
    user_id: UserId | None = None,
    deleted: IncludeDeleted = False,  # noqa: FBT002 - a parameter of the query
) -> ASGIApp:
    """Return everything that is stored about a user, as one JSON object.

    The response is streamed: if it is cut off, it is incomplete. One export per user and three per
    app run at a time; a user may export 30 times an hour, an app 1,000 times.
    """
    owner = owner_of(request, user_id, Scope.USERS_READ)
    if not deleted and await active_users.is_gone(*owner):
        raise NotFound(_NOTHING)
    written = write_export(exports, *owner, to_rfc3339(clock.now()))
    return Parts(written, permit=_permit(exports, export_limits, *owner))


@asynccontextmanager
async def _permit(
    exports: Exports, limits: ExportLimits, app_id: str, user_id: str
) -> AsyncIterator[None]:
    """Count an export while it runs, even an empty one: finding that out takes as long."""
    async with limits.take(app_id, user_id):
        if not await exports.exists(app_id, user_id):
            raise NotFound(_NOTHING)
        yield


@get("/v1/erasures", summary="List erasures", tags=_TAGS)
async def list_erasures(
    request: ApiRequest,
    erasures: Injected[Erasures],
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> Items[ErasureReceipt]:
    """Return the receipts of all erasures of the app, newest first."""
    app_id = app_of(request, Scope.USERS_READ).app_id
    page = await erasures.list(app_id, after=after, limit=check_limit(limit))
    return Items([view_receipt(each) for each in page.items], page.next)


@get("/v1/erasures/{receipt_id:str}", summary="Get an erasure", tags=_TAGS)
async def get_erasure(
    request: ApiRequest, receipt_id: ReceiptId, erasures: Injected[Erasures]
) -> ErasureReceipt:
    """Return the receipt of an erasure, to see whether it is complete."""
    app_id = app_of(request, Scope.USERS_READ).app_id
    erasure = await erasures.get(app_id, receipt_id) if is_plain(receipt_id) else None
    return view_receipt(existing(erasure, "There is no such receipt."))


ROUTES = (delete_user, restore_user, export_user, list_erasures, get_erasure)
