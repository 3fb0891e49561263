"""The inbox over HTTP: of any user for the app's server, and of their own for users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import Parameter

from clarion.access.model import Scope, require_app, require_user
from clarion.access.user_tokens import USER_ID_LENGTH
from clarion.catalog.model import Category
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.events.model import Notification
from clarion.fields import is_plain
from clarion.http.callers import caller_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Limit, check_limit
from clarion.inbox.actions import Acts, Verb
from clarion.inbox.items import Item, to_item
from clarion.inbox.model import InboxState
from clarion.inbox.port import Inboxes
from clarion.pages import Page

OnlyUnread = Annotated[bool, Parameter(description="Only what is not read.")]
InCategory = Annotated[str | None, Parameter(description="Only what is of this category.")]
# A user's own token needs no id: the inbox is that of its `sub`.
_USERS, _ME = "/v1/users/{user_id:str}", "/v1/me"
_TAGS = ("Inbox",)
# How often a page is read before it is given with numbers that may be a moment older.
LOOKS = 3


class InboxPage(msgspec.Struct):
    """A page of an inbox, newest first, with the numbers of the whole inbox."""

    items: list[Item]
    next: str | None
    unread_count: int
    sequence: int


class Numbers(msgspec.Struct):
    """How many are unread, and the number of the last change."""

    unread_count: int
    sequence: int


class ActedItem(Item, kw_only=True):
    """A notification as it is now, and how many are unread now."""

    unread_count: int


@get(
    [f"{_USERS}/notifications", f"{_ME}/notifications"],
    summary="List an inbox",
    tags=_TAGS,
)
async def list_inbox(
    request: Request[Any, Any, Any],
    inboxes: Injected[Inboxes],
    user_id: str | None = None,
    unread: OnlyUnread = False,  # noqa: FBT002 - a parameter of the query
    category: InCategory = None,
    limit: Limit = PAGE_DEFAULT,
    after: After = None,
) -> InboxPage:
    """Return what is not dismissed, newest first."""
    whose = _whose(request, user_id, Scope.NOTIFICATIONS_READ)
    read_page = partial(
        inboxes.page,
        *whose,
        unread=unread,
        category=_check_category(category),
        after=after,
        limit=check_limit(limit),
    )
    page, state = await _read_together(read_page, partial(inboxes.state, *whose))
    items = [to_item(each) for each in page.items]
    return InboxPage(items, page.next, state.unread_count, state.sequence)


async def _read_together(
    read_page: Callable[[], Awaitable[Page[Notification]]],
    read_state: Callable[[], Awaitable[InboxState]],
) -> tuple[Page[Notification], InboxState]:
    """Return a page and the numbers that go with it: nothing has changed between the two.

    In an inbox that never rests the numbers are those before the page: who resumes a stream behind
    them misses nothing.
    """
    state = await read_state()
    for _ in range(LOOKS):
        page = await read_page()
        now = await read_state()
        if now == state:
            break
        before, state = state, now
    else:
        state = before
    return page, state


@get(
    [f"{_USERS}/unread-count", f"{_ME}/unread-count"],
    summary="Count what is unread",
    tags=_TAGS,
)
async def count_unread(
    request: Request[Any, Any, Any], inboxes: Injected[Inboxes], user_id: str | None = None
) -> Numbers:
    """Return the count and the number of the last change; that costs the same for any inbox."""
    state = await inboxes.state(*_whose(request, user_id, Scope.NOTIFICATIONS_READ))
    return Numbers(state.unread_count, state.sequence)


@post(
    [f"{_USERS}/notifications/read-all", f"{_ME}/notifications/read-all"],
    summary="Mark everything read",
    tags=_TAGS,
    status_code=200,
)
async def read_all(
    request: Request[Any, Any, Any], acts: Injected[Acts], user_id: str | None = None
) -> Numbers:
    """Mark read what is unread now. Again changes nothing."""
    state = await acts.read_all(*_whose(request, user_id, Scope.NOTIFICATIONS_WRITE))
    return Numbers(state.unread_count, state.sequence)


@post(
    [f"{_USERS}/notifications/{{nid:str}}/read", f"{_ME}/notifications/{{nid:str}}/read"],
    summary="Mark a notification read",
    tags=_TAGS,
    status_code=200,
)
async def read(
    request: Request[Any, Any, Any],
    nid: str,
    acts: Injected[Acts],
    inboxes: Injected[Inboxes],
    user_id: str | None = None,
) -> ActedItem:
    """Mark it read. Again changes nothing, nor does it for a dismissed one."""
    return await _act(request, (user_id, nid), Verb.READ, acts, inboxes)


@post(
    [f"{_USERS}/notifications/{{nid:str}}/unread", f"{_ME}/notifications/{{nid:str}}/unread"],
    summary="Mark a notification unread",
    tags=_TAGS,
    status_code=200,
)
async def unread(
    request: Request[Any, Any, Any],
    nid: str,
    acts: Injected[Acts],
    inboxes: Injected[Inboxes],
    user_id: str | None = None,
) -> ActedItem:
    """Mark it unread. Again changes nothing, nor does it for a dismissed one."""
    return await _act(request, (user_id, nid), Verb.UNREAD, acts, inboxes)


@post(
    [f"{_USERS}/notifications/{{nid:str}}/dismiss", f"{_ME}/notifications/{{nid:str}}/dismiss"],
    summary="Dismiss a notification",
    tags=_TAGS,
    status_code=200,
)
async def dismiss(
    request: Request[Any, Any, Any],
    nid: str,
    acts: Injected[Acts],
    inboxes: Injected[Inboxes],
    user_id: str | None = None,
) -> ActedItem:
    """Take it out of the list for good; it counts as unread no more. Again changes nothing."""
    return await _act(request, (user_id, nid), Verb.DISMISS, acts, inboxes)


ROUTES = (list_inbox, count_unread, read_all, read, unread, dismiss)


async def _act(
    request: Request[Any, Any, Any],
    names: tuple[str | None, str],
    verb: Verb,
    acts: Acts,
    inboxes: Inboxes,
) -> ActedItem:
    user_id, nid = names
    whose = _whose(request, user_id, Scope.NOTIFICATIONS_WRITE)
    acted = await acts.act(verb, *whose, nid) if is_plain(nid) else None
    if acted is None:
        msg = "There is no such notification in this inbox."
        raise NotFound(msg)
    state = await inboxes.state(*whose)
    item = msgspec.structs.asdict(to_item(acted))
    return ActedItem(**item, unread_count=state.unread_count)


def _whose(request: Request[Any, Any, Any], user_id: str | None, scope: Scope) -> tuple[str, str]:
    """Return app and user: of the path for an app's server, of the token for a user."""
    caller = caller_of(request)
    if user_id is None:
        user = require_user(caller)
        return user.app_id, user.user_id
    if not 0 < len(user_id) <= USER_ID_LENGTH or not is_plain(user_id):
        reason = f"must have 1 to {USER_ID_LENGTH} plain characters"
        raise InvalidFields(FieldFault("user_id", reason))
    return require_app(caller, scope).app_id, user_id


def _check_category(text: str | None) -> Category | None:
    if text is None:
        return None
    try:
        return Category(text)
    except ValueError:
        reason = f"must be one of {', '.join(each.value for each in Category)}"
        raise InvalidFields(FieldFault("category", reason)) from None
