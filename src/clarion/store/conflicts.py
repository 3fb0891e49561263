"""Says what exists already when a constraint of the database refuses a unit."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from clarion.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def explain_conflict(detail: str) -> Iterator[None]:
    """Raise a `Conflict` of the block again, with a text for the caller."""
    try:
        yield
    except Conflict as error:
        raise Conflict(detail) from error
