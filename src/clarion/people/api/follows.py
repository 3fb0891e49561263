"""The topics that users follow, over HTTP: an event for a topic goes to its followers."""

from __future__ import annotations

from litestar import Controller, delete, get, put

from clarion.access.model import Scope
from clarion.clock import Clock
from clarion.errors import NotFound
from clarion.fields import TopicName, UserId, check_topic
from clarion.http.callers import ApiRequest, owner_of
from clarion.http.dependencies import Injected
from clarion.http.shapes import PAGE_DEFAULT, After, Items, Limit, check_limit, check_value
from clarion.http.views import View
from clarion.people.api.users import check_found
from clarion.people.port import Users


class FollowView(View):
    """A topic that a user follows."""

    topic: str
    """The name of the topic."""


class FollowsController(Controller):
    """The topics that a user follows."""

    path = "/v1/users/{user_id:str}/topics"
    tags = ("Users",)

    @get(summary="List followed topics")
    async def list_followed(
        self,
        request: ApiRequest,
        user_id: UserId,
        users: Injected[Users],
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[FollowView]:
        """Return the topics that the user follows, sorted by name."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        size = check_limit(limit)
        check_found(await users.get(*owner))
        page = await users.followed(*owner, after=after, limit=size)
        return Items([FollowView(topic=topic) for topic in page.items], page.next)

    @put("/{topic:str}", summary="Follow a topic", status_code=204, errors=(NotFound,))
    async def follow(
        self,
        request: ApiRequest,
        user_id: UserId,
        topic: TopicName,
        users: Injected[Users],
        clock: Injected[Clock],
    ) -> None:
        """Make the user follow the topic. Idempotent."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        name = check_value("topic", check_topic, topic)
        if not await users.follow(*owner, name, clock.now()):
            check_found(None)

    @delete("/{topic:str}", summary="Unfollow a topic", status_code=204)
    async def unfollow(
        self, request: ApiRequest, user_id: UserId, topic: TopicName, users: Injected[Users]
    ) -> None:
        """Make the user stop following the topic. Idempotent."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        await users.unfollow(*owner, check_value("topic", check_topic, topic))


ROUTES = (FollowsController,)
