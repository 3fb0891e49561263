"""`GET …/notifications` and `…/unread-count`: plain ASGI functions in front of the framework."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import msgspec

from clarion.access.model import Scope
from clarion.catalog.model import Category
from clarion.catalog.port import Catalog
from clarion.errors import Unauthenticated
from clarion.fields import UserId, check_value
from clarion.http.asgi import FastRoute, Operation, Parameter, Request, Response, respond_json
from clarion.http.callers import find_owner
from clarion.http.dependencies import CheckPresent
from clarion.http.etags import answer_known, find_known, make_tag
from clarion.http.queries import read_query
from clarion.http.shapes import PAGE_LIMIT, check_limit, check_name
from clarion.inbox.model import InboxQuery, InboxState, PageOutline
from clarion.inbox.port import Inboxes, InboxPages
from clarion.inbox.views import InboxPage, to_page

Owner = tuple[str, str]
_OK = 200
_OF_ME = "/v1/me/"
_OF_USER = "/v1/users/{user_id}/"
_USER = 3  # the place of the id among the segments of such a path
_FIRST_PAGE = InboxQuery()
_CATEGORIES = frozenset(Category)
_encode = msgspec.json.Encoder().encode
_Size = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": PAGE_LIMIT})]
_LIST = Operation(
    summary="List notifications",
    description="Return the notifications that are not dismissed, newest first.",
    tag="Inbox",
    parameters=(
        Parameter("unread", "query", bool, "Only unread notifications."),
        Parameter("category", "query", str, "Only notifications of this category."),
        Parameter("limit", "query", _Size, "Items in a page, 1 to 100."),
        Parameter("after", "query", str, "The value of `next` in the previous page."),
    ),
    response=InboxPage,
    response_description="The page, and the state of the whole inbox.",
    has_tag=True,
)
_COUNT = Operation(
    summary="Get the unread count",
    description="Return the count and the number of the last change; as cheap for a large inbox.",
    tag="Inbox",
    response=InboxState,
    response_description="The state of the inbox.",
    has_tag=True,
)
_ID = Parameter("user_id", "path", UserId, "The id that your application gives the user.")


class InboxEndpoint:
    """Shows inboxes: to apps those of their users, to users their own."""

    def __init__(
        self, pages: InboxPages, inboxes: Inboxes, catalog: Catalog, check_present: CheckPresent
    ) -> None:
        self._pages = pages
        self._inboxes = inboxes
        self._catalog = catalog
        self._check_present = check_present

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        return (
            FastRoute("GET", f"{_OF_ME}notifications", self.list, _LIST),
            FastRoute("GET", f"{_OF_ME}unread-count", self.count, _COUNT),
            FastRoute("GET", f"{_OF_USER}notifications", self.list, _of_user(_LIST)),
            FastRoute("GET", f"{_OF_USER}unread-count", self.count, _of_user(_COUNT)),
        )

    async def list(self, request: Request) -> Response:
        """Answer with a page; for a client that already has it, only the index is read."""
        given = request.scope["query_string"]
        query = read_query(given, InboxQuery) if given else _FIRST_PAGE
        owner = _find_owner(request)
        await self._check_category(query.category, owner[0])
        check_limit(query.limit)
        await self._check(request, owner)
        if known := find_known(request):
            tag = _tag_page(owner, query, await self._pages.outline(*owner, query))
            if same := answer_known(known, tag):
                return same
        page = await self._pages.read(*owner, query)
        return respond_json(
            _OK, _encode(to_page(page)), (b"etag", _tag_page(owner, query, page.outline))
        )

    async def count(self, request: Request) -> Response:
        """Answer with the unread count and the sequence."""
        owner = _find_owner(request)
        await self._check(request, owner)
        state = await self._inboxes.state(*owner)
        tag = make_tag(*owner, state.unread_count, state.sequence)
        known = find_known(request)
        same = answer_known(known, tag) if known else None
        return same or respond_json(_OK, _encode(state), (b"etag", tag))

    async def _check(self, request: Request, owner: Owner) -> None:
        await self._check_present(*owner, must_be_created=_find_user(request) is not None)

    async def _check_category(self, name: str | None, app_id: str) -> None:
        if name is not None and name not in _CATEGORIES:
            names = [each.name for each in await self._catalog.list_categories(app_id)]
            check_value("category", partial(check_name, names), name)


def _find_user(request: Request) -> str | None:
    """Return the id in the path; None on `/v1/me`."""
    path: str = request.scope["path"]
    return None if path.startswith(_OF_ME) else path.split("/")[_USER]


def _find_owner(request: Request) -> Owner:
    if request.caller is None:
        raise Unauthenticated
    return find_owner(request.caller, _find_user(request), Scope.NOTIFICATIONS_READ)


def _tag_page(owner: Owner, query: InboxQuery, outline: PageOutline) -> bytes:
    state = outline.state
    filters = (query.unread, query.category, query.limit, query.after)
    numbers = (state.unread_count, state.sequence, outline.has_more)
    return make_tag(*owner, *filters, *numbers, *outline.ids)


def _of_user(operation: Operation) -> Operation:
    return replace(operation, parameters=(_ID, *operation.parameters))
