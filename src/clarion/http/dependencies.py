"""Dependencies that Litestar injects into handlers by name: `users: Injected[Users]`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

T = TypeVar("T")
# Called with app and user after a change that affects what is decided for that user.
OnUserChanged = Callable[[str, str], Awaitable[None]]
# Called when there is work to do at once.
Wake = Callable[[str], None]
if TYPE_CHECKING:
    from litestar.di import NamedDependency
    from litestar.params import SkipValidation

    # Ports are Protocols, which Litestar cannot validate.
    Injected = NamedDependency[SkipValidation[T]]


def __getattr__(name: str) -> Any:
    """Import `Injected` when a handler needs it: fast routes do not load the framework."""
    if name != "Injected":
        raise AttributeError(name)
    from litestar.di import NamedDependency  # noqa: PLC0415
    from litestar.params import SkipValidation  # noqa: PLC0415

    return NamedDependency[SkipValidation[T]]  # type: ignore[misc, valid-type]


class CheckPresent(Protocol):
    """Raises `NotFound` if a user was deleted or erased; on request, also if never created.

    For a path with a user id, the user must have been created. For a user token this is not needed:
    an app may sign one before it creates the user.
    """

    async def __call__(
        self, app_id: str, user_id: str, *, must_be_created: bool = False
    ) -> None: ...
