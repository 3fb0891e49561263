"""Topics that people follow, over HTTP: the audience of an event for a topic."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from litestar import Controller, Request, delete, get, put

from clarion import fields
from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.http.callers import app_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, collect
from clarion.people.api.users import check_known, find_user, found
from clarion.people.port import Users


class FollowView(msgspec.Struct):
    """A topic that a person follows."""

    topic: str


class FollowsController(Controller):
    """What a person follows."""

    path = "/v1/users/{user_id:str}/topics"
    tags = ("People",)

    @get(summary="List the topics that a person follows")
    async def list_followed(
        self,
        request: Request[Any, Any, Any],
        user_id: str,
        users: Injected[Users],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[FollowView]:
        """Return the topics in the order of their names."""
        caller = app_of(request, Scope.USERS_READ)
        size = check_limit(limit)
        user = await find_user(users, caller.app_id, user_id)
        page = await users.followed(caller.app_id, user.id, after=after, limit=size)
        return Items([FollowView(topic) for topic in page.items], page.next)

    @put("/{topic:str}", summary="Let a person follow a topic", status_code=204)
    async def follow(
        self,
        request: Request[Any, Any, Any],
        user_id: str,
        topic: str,
        users: Injected[Users],
        clock: Injected[Clock],
    ) -> None:
        """Follow from now on. Again changes nothing."""
        caller = app_of(request, Scope.USERS_WRITE)
        name = _check_topic(topic)
        if not await users.follow(caller.app_id, check_known(user_id), name, clock.now()):
            found(None)

    @delete("/{topic:str}", summary="Stop following a topic", status_code=204)
    async def unfollow(
        self, request: Request[Any, Any, Any], user_id: str, topic: str, users: Injected[Users]
    ) -> None:
        """Stop. Again changes nothing."""
        caller = app_of(request, Scope.USERS_WRITE)
        await users.unfollow(caller.app_id, check_known(user_id), _check_topic(topic))


def _check_topic(topic: str) -> str:
    name: str = collect({"topic": partial(fields.check_topic, topic)})["topic"]
    return name
