"""Cancelling a task that waits for an operation which can lose the cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def end_if_cancelled(operation: Awaitable[T]) -> T:
    """Wait for an operation, and raise `CancelledError` if the task was cancelled meanwhile.

    An operation of pyreqwest that gets its result at that moment returns it, and the cancellation
    would be lost: a loop would never end.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - an operation runs in a task
    before = task.cancelling()
    try:
        return await operation
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError
