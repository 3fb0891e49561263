"""The real SQL on SQLite in memory, and a way to pause it in the middle.

Every read and write pauses twice: before it is done, and before its result is returned. The order
in which a test lets them go on is an interleaving, as two nodes and a network produce them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import apsw

from clarion.errors import StoreUnavailable
from clarion.store.engine import Engine
from clarion.store.group_commit import Rows
from clarion.store.statement import Row, Statement, Unit, Value
from tests.migrated import copy_migrated
from tests.unit.conftest import MemoryEngine

TURNS = 20


class Gates:
    """Where reads and writes pause. Open gates let everything pass at once."""

    def __init__(self) -> None:
        self.are_open = True
        # Whether units are committed in the order in which they were handed over, as one node
        # does. Else they are committed in the order in which they pass, as those of two nodes.
        self.keep_order = False
        self.failures: list[bool] = []  # whether each of the next pauses fails
        self._waiting: list[asyncio.Future[None]] = []

    async def pause(self) -> None:
        if self.failures and self.failures.pop(0):
            raise StoreUnavailable
        if not self.are_open:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def let_pass(self, number: int = 0) -> None:
        """Let one of those that wait go on, and wait until nothing moves any more."""
        await settle()
        if self._waiting:
            self._waiting.pop(number % len(self._waiting)).set_result(None)
        await settle()

    async def let_all_pass(self) -> None:
        """Let all go on, those that come after them too, until none waits."""
        await settle()
        while self._waiting:
            await self.let_pass()


@dataclass(eq=False)
class Handed:
    """A unit that was handed over to be written, and then the rows of its steps."""

    unit: Unit
    rows: Rows | None = None


class GatedEngine(MemoryEngine):
    """A store in memory behind gates."""

    def __init__(self, connection: apsw.Connection, gates: Gates) -> None:
        super().__init__(connection)
        self.writes = 0
        self._gates = gates
        self._handed: list[Handed] = []

    async def write(self, unit: Unit) -> Rows | None:
        self.writes += 1
        mine = Handed(unit)
        self._handed.append(mine)
        try:
            await self._gates.pause()
        except StoreUnavailable:
            self._handed.remove(mine)
            raise
        while mine in self._handed:
            each = self._handed[0] if self._gates.keep_order else mine
            self._handed.remove(each)
            each.rows = await super().write(each.unit)
        await self._gates.pause()
        return mine.rows

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        await self._gates.pause()
        rows = await super().fetch(statement, **values)
        await self._gates.pause()
        return rows


class OpenEngine(MemoryEngine):
    """A store in memory, for the test itself."""

    fetch_slowly = fetch_in_background = MemoryEngine.fetch


class GatedStore:
    """One database in memory: behind gates for the code under test, and open for the test."""

    def __init__(self) -> None:
        connection = copy_migrated()
        self.gates = Gates()
        self._gated = GatedEngine(connection, self.gates)
        self.gated = cast("Engine", self._gated)
        self.open = cast("Engine", OpenEngine(connection))

    @property
    def reads(self) -> int:
        """How often the code under test has read."""
        return self._gated.reads

    @property
    def writes(self) -> int:
        """How many units the code under test has written."""
        return self._gated.writes


async def settle() -> None:
    """Let the loop turn until what can go on has gone on."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
