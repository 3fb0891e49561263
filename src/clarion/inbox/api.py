"""The inbox over HTTP: of any user for the app's server, and of their own for users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

import msgspec
from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter

from clarion.access.model import Scope
from clarion.catalog.model import Category
from clarion.catalog.port import Catalog
from clarion.errors import NotFound
from clarion.events.model import Notification
from clarion.fields import NotificationId, UserId, is_plain
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import CheckPresent, Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import PAGE_DEFAULT, check_limit, check_name, check_value
from clarion.inbox.actions import InboxActions
from clarion.inbox.model import InboxAction, InboxItem, InboxState, to_item
from clarion.inbox.port import Inboxes
from clarion.pages import Page

OnlyUnread = Annotated[bool, Parameter(description="Only unread notifications.")]
InCategory = Annotated[str | None, Parameter(description="Only notifications of this category.")]
_TAGS = ("Inbox",)
# How often a page is read before it is returned with a state that may be slightly older.
READ_ATTEMPTS = 3


class InboxPage(msgspec.Struct):
    """A page of an inbox, newest first, with the state of the whole inbox."""

    items: list[InboxItem]
    """The notifications of this page, newest first."""
    next: str | None
    """The value of `?after=` for the next page; null on the last page."""
    unread_count: int
    """How many notifications of the whole inbox are unread."""
    sequence: int
    """The number of the last change to the inbox; streams resume after it."""


class ChangedInboxItem(InboxItem, kw_only=True):
    """A notification after an action, and how many are unread now."""

    unread_count: int
    """How many notifications of the inbox are unread now."""


def _paths(path: str) -> list[str]:
    """Return both paths: a user's own token needs no id, the inbox is that of its `sub`."""
    return [f"/v1/users/{{user_id:str}}/{path}", f"/v1/me/{path}"]


@get(_paths("notifications"), summary="List notifications", tags=_TAGS)
async def list_inbox(  # noqa: PLR0913, PLR0917 - a line for each parameter of the query
    request: ApiRequest,
    inboxes: Injected[Inboxes],
    check_present: Injected[CheckPresent],
    catalog: Injected[Catalog],
    user_id: UserId | None = None,
    unread: OnlyUnread = False,  # noqa: FBT002 - a parameter of the query
    category: InCategory = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> InboxPage:
    """Return the notifications that are not dismissed, newest first."""
    owner = owner_of(request, user_id, Scope.NOTIFICATIONS_READ)
    read_page = partial(
        inboxes.page,
        *owner,
        unread=unread,
        category=await _check_category(category, owner[0], catalog),
        after=after,
        limit=check_limit(limit),
    )
    await check_present(*owner, must_be_created=user_id is not None)
    page, state = await _read_together(read_page, partial(inboxes.state, *owner))
    items = [to_item(each) for each in page.items]
    return InboxPage(items, page.next, state.unread_count, state.sequence)


async def _check_category(text: str | None, app_id: str, catalog: Catalog) -> str | None:
    if text is None or text in set(Category):
        return text
    names = [each.name for each in await catalog.list_categories(app_id)]
    return check_value("category", partial(check_name, names), text)


async def _read_together(
    read_page: Callable[[], Awaitable[Page[Notification]]],
    read_state: Callable[[], Awaitable[InboxState]],
) -> tuple[Page[Notification], InboxState]:
    """Return a page and the state that goes with it: nothing has changed between the two.

    If the inbox changes all the time, the state is from before the page: a client that resumes a
    stream after it misses nothing.
    """
    state = await read_state()
    for _ in range(READ_ATTEMPTS):
        before, page = state, await read_page()
        state = await read_state()
        if state == before:
            break
    return page, before


@get(_paths("unread-count"), summary="Get the unread count", tags=_TAGS)
async def count_unread(
    request: ApiRequest,
    inboxes: Injected[Inboxes],
    check_present: Injected[CheckPresent],
    user_id: UserId | None = None,
) -> InboxState:
    """Return the count and the number of the last change; as cheap for a large inbox."""
    owner = owner_of(request, user_id, Scope.NOTIFICATIONS_READ)
    await check_present(*owner, must_be_created=user_id is not None)
    return await inboxes.state(*owner)


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
    """Mark everything read that is unread now. Repeating it changes nothing."""
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
    list_inbox,
    count_unread,
    read_all,
    _action_route(InboxAction.READ, "Mark a notification read"),
    _action_route(InboxAction.UNREAD, "Mark a notification unread"),
    _action_route(InboxAction.DISMISS, "Dismiss a notification"),
    _action_route(InboxAction.CLICK, "Record a click"),
)
