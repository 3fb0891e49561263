"""Runs a command that reads and writes the stores directly, without a server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from clarion.house import House as Stores
from clarion.house import open_house as open_stores

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from clarion.settings import Settings

__all__ = ["Stores", "run_with_stores"]


def run_with_stores(
    settings: Settings, work: Callable[[Stores], Coroutine[None, None, None]]
) -> None:
    """Open the stores, migrated if necessary, and run the command on them."""

    async def run() -> None:
        async with open_stores(settings) as stores:
            await work(stores)

    asyncio.run(run())
