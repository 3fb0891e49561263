"""Dependencies that Litestar injects into handlers by name: `users: Injected[Users]`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from litestar.di import NamedDependency
from litestar.params import SkipValidation

T = TypeVar("T")
# Ports are Protocols, which Litestar cannot validate.
Injected = NamedDependency[SkipValidation[T]]
# Called with app and user after a change that affects what is decided for that user.
OnUserChanged = Callable[[str, str], Awaitable[None]]
# Called when there is work to do at once.
Wake = Callable[[str], None]


class CheckPresent(Protocol):
    """Raises `NotFound` if a user was deleted or erased; on request, also if never created.

    A path with the id of a user needs one that was created. The token of a user does not: an app
    may sign one before it creates the user.
    """

    async def __call__(
        self, app_id: str, user_id: str, *, must_be_created: bool = False
    ) -> None: ...
