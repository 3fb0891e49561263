"""The topics that users follow, over HTTP: an event for a topic goes to its followers."""

from __future__ import annotations

from litestar import Controller, delete, get, put

from clarion.access.model import Scope, UserCaller
from clarion.clock import Clock
from clarion.fields import TopicName, UserId, check_topic, check_value
from clarion.http.callers import ApiRequest, caller_of, owner_of
from clarion.http.dependencies import Injected
from clarion.http.parameters import After, Limit
from clarion.http.shapes import Items, check_limit
from clarion.http.views import View
from clarion.pages import PAGE_DEFAULT
from clarion.people.api.users import check_found
from clarion.people.sql import Users
from clarion.push.model import require_open
from clarion.push.port import Topics

_PATHS = ["/users/{user_id:str}/topics", "/me/topics"]
_TOPIC_PATHS = [f"{path}/{{topic:str}}" for path in _PATHS]


class FollowView(View):
    """A topic that a user follows."""

    topic: str
    """The name of the topic."""


class FollowsController(Controller):
    """The topics that a user follows: for the app, or under `/v1/me` for the calling user."""

    path = "/v1"
    tags = ("Topics",)

    @get(_PATHS, summary="List followed topics")
    async def list_followed(
        self,
        request: ApiRequest,
        users: Injected[Users],
        user_id: UserId | None = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
    ) -> Items[FollowView]:
        """Return the topics that the user follows, sorted by name."""
        owner = owner_of(request, user_id, Scope.USERS_READ)
        size = check_limit(limit)
        check_found(await users.get(*owner), owner[1])
        page = await users.followed(*owner, after=after, limit=size)
        return Items([FollowView(topic=topic) for topic in page.items], page.next)

    @put(_TOPIC_PATHS, summary="Follow a topic", status_code=204)
    async def follow(
        self,
        request: ApiRequest,
        topic: TopicName,
        users: Injected[Users],
        topics: Injected[Topics],
        clock: Injected[Clock],
        user_id: UserId | None = None,
    ) -> None:
        """Make the user follow the topic, one of at most 1,000. A repeat changes nothing.

        With a user token, only open topics are allowed.
        """
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        name = check_value("topic", check_topic, topic)
        if isinstance(caller_of(request), UserCaller):
            require_open(await topics.get(owner[0], name), name)
        if not await users.follow(*owner, name, clock.now()):
            check_found(None, owner[1])

    @delete(_TOPIC_PATHS, summary="Unfollow a topic", status_code=204)
    async def unfollow(
        self,
        request: ApiRequest,
        topic: TopicName,
        users: Injected[Users],
        user_id: UserId | None = None,
    ) -> None:
        """Make the user stop following the topic. Idempotent."""
        owner = owner_of(request, user_id, Scope.USERS_WRITE)
        name = check_value("topic", check_topic, topic)
        check_found(await users.get(*owner), owner[1])
        await users.unfollow(*owner, name)


ROUTES = (FollowsController,)
