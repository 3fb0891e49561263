"""The actions on an inbox over HTTP: of any user for the app's server, of their own for users."""

from __future__ import annotations

import msgspec
from litestar import post
from litestar.handlers import HTTPRouteHandler

from clarion.access.model import Scope
from clarion.errors import NotFound
from clarion.fields import NotificationId, UserId, is_plain
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import CheckPresent, Injected
from clarion.inbox.actions import InboxActions
from clarion.inbox.model import InboxAction, InboxState
from clarion.inbox.port import Inboxes
from clarion.inbox.views import InboxItem, to_item

_TAGS = ("Inbox",)


class ChangedInboxItem(InboxItem, kw_only=True):
    """A notification after an action, and how many are unread now."""

    unread_count: int
    """How many notifications of the inbox are unread now."""


def _paths(path: str) -> list[str]:
    """Return both paths: a user's own token needs no id, the inbox is that of its `sub`."""
    return [f"/v1/users/{{user_id:str}}/{path}", f"/v1/me/{path}"]


@post(
    _paths("notifications/read-all"),
    summary="Mark all notifications read",
    tags=_TAGS,
    status_code=200,
)
async def read_all(
    request: ApiRequest,
    inbox_actions: Injected[InboxActions],
    check_present: Injected[CheckPresent],
    user_id: UserId | None = None,
) -> InboxState:
    """Mark all unread notifications as read. Repeating it changes nothing."""
    owner = owner_of(request, user_id, Scope.NOTIFICATIONS_WRITE)
    await check_present(*owner, must_be_created=user_id is not None)
    return await inbox_actions.read_all(*owner)


def _action_route(action: InboxAction, summary: str) -> HTTPRouteHandler:
    async def apply(
        request: ApiRequest,
        notification_id: NotificationId,
        inbox_actions: Injected[InboxActions],
        inboxes: Injected[Inboxes],
        check_present: Injected[CheckPresent],
        user_id: UserId | None = None,
    ) -> ChangedInboxItem:
        """Apply the action. Repeating it changes nothing; a dismissed one is not changed."""
        owner = owner_of(request, user_id, Scope.NOTIFICATIONS_WRITE)
        await check_present(*owner, must_be_created=user_id is not None)
        changed = (
            await inbox_actions.apply(action, *owner, notification_id)
            if is_plain(notification_id)
            else None
        )
        if changed is None:
            raise NotFound("There is no such notification in this inbox.")
        state = await inboxes.state(*owner)
        item = msgspec.structs.asdict(to_item(changed))
        return ChangedInboxItem(**item, unread_count=state.unread_count)

    apply.__name__ = action.value  # the operation's id in OpenAPI is made of it
    paths = _paths(f"notifications/{{notification_id:str}}/{action}")
    return post(paths, summary=summary, tags=_TAGS, status_code=200)(apply)


ROUTES = (
    read_all,
    _action_route(InboxAction.READ, "Mark a notification read"),
    _action_route(InboxAction.UNREAD, "Mark a notification unread"),
    _action_route(InboxAction.DISMISS, "Dismiss a notification"),
    _action_route(InboxAction.CLICK, "Record a click"),
)
