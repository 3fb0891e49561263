"""Dependencies that Litestar injects into handlers by name: `users: Injected[Users]`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from litestar.di import NamedDependency
from litestar.params import SkipValidation

T = TypeVar("T")
# Ports are Protocols, which Litestar cannot validate.
Injected = NamedDependency[SkipValidation[T]]
# Called with app id and user id after a change that affects decisions on their notifications.
OnPersonChanged = Callable[[str, str], Awaitable[None]]
# Wakes the workers: there is work to do now.
Wake = Callable[[], None]
