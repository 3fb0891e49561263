"""One database in memory, and the writer process that keeps it, without a process.

SQLite itself, the batches and the messages of the link are real. Simulated are the pipe and the
disk: they delay, refuse, and break.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import apsw
import msgspec

from clarion.errors import StorageFull, StoreUnavailable
from clarion.store.batch import Group, Outcome, arrange
from clarion.store.companions import write_accompanied
from clarion.store.group_commit import BatchRunner, GroupCommit, Rows
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.child import (
    OPENED,
    Answer,
    Busy,
    Finished,
    Opened,
    Scrubbed,
    Trouble,
    answer,
)
from clarion.store.sqlite.process import WriterProcess
from clarion.store.sqlite.runner import SqliteRunner, keep_plans
from clarion.store.statement import Row, Statement, Unit, Value
from clarion.system.child_process import Child
from tests.simulation.faults import Faults
from tests.simulation.loop import NODE, SeededLoop

_HEADER_BYTES = 4
# What a whole batch may fail with, before it is committed.
_OF_BATCHES = {
    "disk_full": StorageFull,
    "store_busy": StoreUnavailable,
    "store_lost": StoreUnavailable,
}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[Group] | int]).decode


@cache
def _empty() -> bytes:
    """Return a database with all migrations."""
    connection = apsw.Connection(":memory:")
    apply_to_sqlite(connection)
    return bytes(connection.serialize("main"))


class Disk:
    """The database; what was committed outlives every node."""

    def __init__(self, content: bytes | None = None) -> None:
        self.connection = apsw.Connection(":memory:")
        self.connection.deserialize("main", content or _empty())
        keep_plans(self.connection)
        self.runner = SqliteRunner(self.connection)
        # Nodes that cannot reach it, where it is a server.
        self.cut: set[int] = set()

    async def reach(self) -> None:
        """Return if this node reaches the server; `StoreUnavailable` after some time if not."""
        if NODE.get() in self.cut:
            await asyncio.sleep(5)
            raise StoreUnavailable

    def read(self, text: str, row: Row = ()) -> Sequence[Row]:
        """Return rows of what is committed."""
        return self.connection.execute(text, row).fetchall()


class SimulatedWriter:
    """Both ends of the pipe to a writer process, and the process."""

    pid = 0

    def __init__(self, loop: SeededLoop, disk: Disk, faults: Faults) -> None:
        self._loop, self._disk, self._faults = loop, disk, faults
        self._node = NODE.get()
        self.reader = asyncio.StreamReader(loop=loop)
        self._exited: asyncio.Future[None] = loop.create_future()
        self._asked: deque[bytes] = deque()
        self._is_open = self._is_busy = self._is_closing = False

    @property
    def child(self) -> Child:
        """What `WriterProcess` is given in place of a process."""
        process: Any = self
        return Child(process, self.reader, process)

    # The server's end.

    def writelines(self, parts: Iterable[bytes]) -> None:
        message = b"".join(parts)[_HEADER_BYTES:]
        if not self._exited.done():
            self._asked.append(message)
            self._begin()

    def close(self) -> None:
        self._is_closing = True
        self._begin()

    async def wait(self) -> int:
        await asyncio.shield(self._exited)
        return 0

    def kill(self) -> None:
        self._exit()

    # The process.

    def _begin(self) -> None:
        if not self._is_busy and not self._exited.done():
            self._is_busy = True
            self._loop.call_apart(self._faults.delay_s("pipe"), self._work)

    def _work(self) -> None:
        if self._exited.done() or self._loop.is_dead(self._node):
            return
        if not self._asked:
            self._is_busy = False
            if self._is_closing:
                self._exit()
            return
        message = self._asked.popleft()
        if not self._is_open:
            self._is_open = True
            self._say(OPENED, Opened())
            return
        number, asked = _decode(message)
        if self._faults.happens("writer_dies"):
            self._exit()
            return
        said = self._do(asked)
        if isinstance(asked, int) and self._faults.happens("scrub_slow"):
            # Somebody reads the log, or the disk is slow.
            self._loop.call_apart(
                self._faults.chance.random() * 20, partial(self._say, number, said)
            )
            return
        if self._faults.happens("writer_dies_after"):
            self._exit()
            return
        self._say(number, said)

    def _do(self, asked: list[Group] | int) -> Answer:
        if isinstance(asked, int):
            return Busy() if self._faults.happens("scrub_busy") else Scrubbed(None)
        if self._faults.happens("disk_full"):
            return Trouble("full", "FullError")
        if self._faults.happens("store_busy"):
            return Trouble("unavailable", "BusyError")
        done = answer(self._disk.runner, asked)
        if self._faults.happens("answer_unknown"):
            return Trouble("unavailable", "IOError")
        return done

    def _say(self, number: int, said: Answer) -> None:
        message = _encode((number, said))
        framed = len(message).to_bytes(_HEADER_BYTES, "big") + message

        def arrive() -> None:
            if not self._exited.done():
                self.reader.feed_data(framed)
            self._work()

        self._loop.call_apart(self._faults.delay_s("disk"), arrive)

    def _exit(self) -> None:
        if not self._exited.done():
            self._exited.set_result(None)
            self.reader.feed_eof()


class SimulatedEngine:
    """The `Engine` port: group commit over the simulated pipe, reads of what is committed."""

    shared_read_pause_s = 0.001

    def __init__(self, disk: Disk, process: WriterProcess, faults: Faults) -> None:
        self.commit = make_commit(process)
        self._disk, self._process, self._faults = disk, process, faults

    @classmethod
    async def open(
        cls, loop: SeededLoop, disk: Disk, faults: Faults, on_broken: Callable[[str], None]
    ) -> "SimulatedEngine":
        writer = SimulatedWriter(loop, disk, faults)
        process = await WriterProcess.start("simulated", on_broken, writer.child)
        return cls(disk, process, faults)

    async def write(self, unit: Unit) -> Rows | None:
        return await write_accompanied(self.commit, unit)

    async def write_apart(self, unit: Unit) -> Rows | None:
        return await self.commit.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        # On SQLite a short read does not wait; on PostgreSQL it does, and so it may here.
        if self._faults.has_slow_reads:
            await asyncio.sleep(self._faults.delay_s("read"))
        if self._faults.happens("read_fails"):
            raise StoreUnavailable
        rows = self._disk.read(statement.text, statement.bind(**values))
        if self._faults.has_slow_reads:
            await asyncio.sleep(self._faults.delay_s("read"))
        return rows

    async def fetch_slowly(self, statement: Statement, **values: Value) -> Sequence[Row]:
        await asyncio.sleep(self._faults.delay_s("read"))
        return await self.fetch(statement, **values)

    fetch_in_background = fetch_slowly

    async def scrub(self) -> bool:
        while (done := await self._process.scrub(1)) is None:  # noqa: ASYNC110 - as it is tried
            await asyncio.sleep(0.1)
        return done.next_page is None

    async def read_time(self) -> None:
        return None

    async def check(self) -> None:
        if self.commit.is_stuck:
            raise StoreUnavailable

    async def close(self) -> None:
        await self.commit.close()
        await self._process.close()


class SharedRunner:
    """The connection of a node to a database that several nodes write to: a `BatchRunner`."""

    def __init__(self, disk: Disk, faults: Faults) -> None:
        self._disk, self._faults = disk, faults

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        await asyncio.sleep(self._faults.delay_s("pipe"))
        await self._disk.reach()
        for fault, error in _OF_BATCHES.items():
            if self._faults.happens(fault):
                raise error
        done = answer(self._disk.runner, arrange(units))
        if not isinstance(done, Finished):
            raise StoreUnavailable
        await asyncio.sleep(self._faults.delay_s("disk"))
        await self._disk.reach()
        if self._faults.happens("answer_unknown"):
            raise StoreUnavailable
        return done.report.outcomes(units)


class SharedEngine(SimulatedEngine):
    """The `Engine` port on that database: claims have a connection apart from requests."""

    def __init__(self, disk: Disk, faults: Faults) -> None:
        self.commit, self._apart = (make_commit(SharedRunner(disk, faults)) for _ in range(2))
        self._disk, self._faults = disk, faults

    async def write_apart(self, unit: Unit) -> Rows | None:
        return await self._apart.write(unit)

    async def fetch(self, statement: Statement, **values: Value) -> Sequence[Row]:
        await self._disk.reach()
        return await super().fetch(statement, **values)

    async def scrub(self) -> bool:
        return True

    async def close(self) -> None:
        await self.commit.close()
        await self._apart.close()


def make_commit(runner: BatchRunner) -> GroupCommit:
    return GroupCommit(runner, waiting_limit=20_000, batch_limit=1_000)
