"""Categories over HTTP: built-in ones, and the app's own."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import Controller, Response, delete, get, put

from clarion.access.model import Scope
from clarion.catalog import built_in
from clarion.catalog.api.types import Label, check_channels, check_display_name
from clarion.catalog.catalog import Catalog
from clarion.catalog.model import CategoryDefinition, Channel
from clarion.catalog.sql import Categories
from clarion.clock import Clock
from clarion.errors import Conflict, NotFound
from clarion.fields import VISIBLE_OR_NOTHING, documented
from clarion.http.bodies import Body, Checks, collect
from clarion.http.callers import ApiRequest, app_of, app_or_user_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.responses import describe_response
from clarion.http.shapes import Items, check_limit
from clarion.http.views import View
from clarion.pages import PAGE_DEFAULT, cut_page

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
CategoryName = Annotated[
    str,
    msgspec.Meta(
        description="The name that types and preferences use.",
        extra_json_schema={"pattern": f"^{_NAME.pattern}$"},
    ),
]
_BUILT_IN = "This category is built-in: it can neither be changed nor deleted."


class CategoryBody(Body):
    """A category of the app's own."""

    title: Label
    """What users read in their preferences, in one line."""
    description: (
        Annotated[
            str, msgspec.Meta(max_length=500, extra_json_schema={"pattern": VISIBLE_OR_NOTHING})
        ]
        | None
    ) = None
    """What notifications of the category are about."""
    default_channels: Annotated[list[Channel], documented(minItems=1, uniqueItems=True)] = (
        msgspec.field(default_factory=lambda: [Channel.IN_APP])
    )
    """The channels of a new type of the category that names none itself."""
    user_can_disable: bool = True
    """Whether users can turn the category and its types off. Quiet hours apply in any case."""

    def checks(self) -> Checks:
        """Return the checks of the texts and channels."""
        return {
            "title": lambda: check_display_name(self.title),
            "description": lambda: self.description and check_display_name(self.description),
            "default_channels": lambda: check_channels(self.default_channels),
        }


class CategoryView(View):
    """A category of the calling app. `origin` is `built_in` or `own`."""

    name: str
    """The name that types and preferences use."""
    title: str
    """What users read in their preferences."""
    description: str | None
    """What notifications of the category are about."""
    default_channels: list[Channel]
    """The channels of a new type of the category that names none itself."""
    user_can_disable: bool
    """Whether users can turn it off."""
    origin: Literal["built_in", "own"]
    """`built_in`, or `own` if the app has defined it."""


class CategoriesController(Controller):
    """The categories of the calling app."""

    path = "/v1/categories"
    tags = ("Types",)

    @get(summary="List categories")
    async def list_categories(
        self,
        request: ApiRequest,
        catalog: Injected[Catalog],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[CategoryView]:
        """Return all categories, built-in ones included, sorted by name. Users may read them."""
        app_id = app_or_user_of(request, Scope.TYPES_READ).app_id
        size = check_limit(limit)
        every = sorted(await catalog.list_categories(app_id), key=lambda each: each.name)
        left = [each for each in every if each.name > (after or "")]
        page = cut_page(left, size, lambda each: each.name)
        return Items([_view(each) for each in page.items], page.next)

    @put(
        "/{name:str}",
        summary="Create or replace a category",
        responses={201: describe_response(CategoryView, "The category was created.")},
        errors=(Conflict,),
    )
    async def put_category(
        self,
        request: ApiRequest,
        name: CategoryName,
        data: CategoryBody,
        categories: Injected[Categories],
        catalog: Injected[Catalog],
        clock: Injected[Clock],
    ) -> Response[CategoryView]:
        """Define a category (201), or replace its definition (200). An app can have 50."""
        app_id = app_of(request, Scope.TYPES_WRITE).app_id
        stored = await categories.put(app_id, _define(name, data, clock.now()))
        if stored is None:
            raise Conflict("An app can have at most 50 categories of its own. Delete one first.")
        catalog.forget_app(app_id)
        category, is_new = stored
        return Response(_view(category), status_code=201 if is_new else 200)

    @delete("/{name:str}", summary="Delete a category", status_code=204, errors=(Conflict,))
    async def delete_category(
        self,
        request: ApiRequest,
        name: CategoryName,
        categories: Injected[Categories],
        catalog: Injected[Catalog],
    ) -> None:
        """Delete a category that no type uses; 409 as long as one does."""
        app_id = app_of(request, Scope.TYPES_WRITE).app_id
        if name in built_in.CATEGORIES:
            raise Conflict(_BUILT_IN)
        if not _NAME.fullmatch(name) or not await categories.delete(app_id, name):
            raise NotFound(f"There is no category {name!r}.")
        catalog.forget_app(app_id)


def _define(name: str, data: CategoryBody, now: int) -> CategoryDefinition:
    if name in built_in.CATEGORIES:
        raise Conflict(_BUILT_IN)
    checked = collect({"name": partial(_check_name, name), **data.checks()})
    return CategoryDefinition(
        **checked, user_can_disable=data.user_can_disable, created_at=now, updated_at=now
    )


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            "must begin with a small letter or a digit, and have 1 to 64 of these, _ or -"
        )
    return text


def _view(category: CategoryDefinition) -> CategoryView:
    origin = "built_in" if category.name in built_in.CATEGORIES else "own"
    return CategoryView.of(category, origin=origin)


ROUTES = (CategoriesController,)
