"""Dependencies that Litestar injects into handlers by name: `users: Injected[Users]`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from litestar.di import NamedDependency
from litestar.params import SkipValidation

T = TypeVar("T")
# Ports are Protocols, which Litestar cannot validate.
Injected = NamedDependency[SkipValidation[T]]
# Called with app and user after a change that affects what is decided for that user.
OnUserChanged = Callable[[str, str], Awaitable[None]]
# Raises `NotFound` if a user, given as app and user id, was deleted or erased.
CheckPresent = Callable[[str, str], Awaitable[None]]
# Called when there is work to do at once.
Wake = Callable[[str], None]
