"""The server's side of the writer process: starts it, sends batches, receives reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from clarion.errors import StorageFull, StoreUnavailable
from clarion.store.batch import Failed, Group, Outcome, arrange
from clarion.store.sqlite.child import OPENED, Answer, Finished, Opened, Scrubbed, Trouble
from clarion.store.statement import Unit
from clarion.system.child_process import Child, open_child, read, write

# How long the process may take to exit.
_END_S = 5.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, Answer]).decode
# Text that is not valid Unicode, a number beyond 64 bits, a value of another type.
_UNSENDABLE = (OverflowError, TypeError, ValueError)


async def begin_writer() -> Child:
    """Start the process, which then waits for the path of its database."""
    return await open_child("clarion.store.sqlite.child")


class WriterProcess:
    """A batch runner in a process of its own.

    A caller that is cancelled leaves, and the answer to its question is read and dropped: left in
    the socket, it would be taken for the answer to the next one.

    If it breaks (it was killed, or the disk failed), the outcome of the running batch is unknown,
    every later batch is refused, and `on_broken` is called: the server stops, and its next start
    opens the database again.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_broken: Callable[[str], None],
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._on_broken = on_broken
        self._is_broken = False
        self._numbers = count(OPENED + 1)
        # The questions that are not answered yet, in the order in which the process answers them.
        self._asked: deque[tuple[int, asyncio.Future[Answer]]] = deque()
        loop = asyncio.get_running_loop()
        self._watch = loop.create_task(self._watch_exit())
        self._reading = loop.create_task(self._read_answers())

    @classmethod
    async def start(
        cls, path: str, on_broken: Callable[[str], None], begun: Child | None = None
    ) -> WriterProcess:
        """Start the process, unless it has begun already, and wait until the database is open."""
        child = begun or await begin_writer()
        # Until it is open, the caller gets an error.
        self = cls(*child, lambda _message: None)
        write(child.writer, path.encode())
        try:
            answer = await self._expect(OPENED)
        except StoreUnavailable as error:
            await self.close()
            what = "the writer process exited before it had opened the database"
            raise StoreUnavailable(what) from error
        except BaseException:
            await self.close()
            raise
        if not isinstance(answer, Opened):
            await self.close()
            raise _error_of(answer)
        self._on_broken = on_broken
        return self

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        if self._is_broken:
            raise StoreUnavailable
        try:
            asking = self._ask(arrange(units))
        except _UNSENDABLE:
            return await self._run_sendable(units)
        answer = await asking
        if isinstance(answer, Finished):
            return answer.report.outcomes(units)
        raise _error_of(answer)

    async def scrub(self, first_page: int) -> Scrubbed | None:
        """Remove deleted data from the log and from some pages; None if a read is running."""
        if self._is_broken:
            raise StoreUnavailable
        answer = await self._ask(first_page)
        if isinstance(answer, Trouble):
            raise _error_of(answer)
        return answer if isinstance(answer, Scrubbed) else None

    def _ask(self, question: list[Group] | int) -> asyncio.Future[Answer]:
        number = next(self._numbers)
        message = _encode((number, question))
        answer = self._expect(number)
        write(self._writer, message)
        return answer

    def _expect(self, number: int) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append((number, answer))
        return answer

    async def _read_answers(self) -> None:
        """Give each answer to the caller that asked for it, until the process ends."""
        with contextlib.suppress(EOFError, OSError, msgspec.MsgspecError):
            while self._take(*_decode(await read(self._reader))):
                pass
        self._break("the writer process exited")
        for _, asked in self._asked:
            if not asked.done():
                asked.set_exception(StoreUnavailable("the writer process exited"))
        self._asked.clear()

    def _take(self, number: int, answer: Answer) -> bool:
        """Resolve the oldest question; False if this is the answer to another."""
        if not self._asked or self._asked[0][0] != number:
            self._break("the writer process answered another question")
            return False
        _, asked = self._asked.popleft()
        if not asked.done():  # otherwise its caller was cancelled
            asked.set_result(answer)
        if isinstance(answer, Trouble) and answer.kind == "broken":
            self._break(answer.message)
        return True

    async def close(self) -> None:
        """Let the process exit, and kill it if it does not; its last batch is then unknown."""
        self._is_broken = True
        self._writer.close()
        _, hanging = await asyncio.wait([self._watch], timeout=_END_S)
        if hanging:
            self._process.kill()
            await self._watch
        await self._reading

    async def _watch_exit(self) -> None:
        """Report at once that the process has exited, also if nothing is being written."""
        await self._process.wait()
        self._break("the writer process exited")

    async def _run_sendable(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        """Run the units without those whose values cannot be sent; these fail alone."""
        faults = [_fault_of(unit) for unit in units]
        good = [unit for unit, fault in zip(units, faults, strict=True) if fault is None]
        outcomes = iter(await self.run(good) if good else ())
        return [fault or next(outcomes) for fault in faults]

    def _break(self, message: str) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._on_broken(message)


def _fault_of(unit: Unit) -> Failed | None:
    try:
        _encode(arrange([unit]))
    except _UNSENDABLE as error:
        return Failed(constraint=False, message=type(error).__name__)
    return None


def _error_of(answer: Answer) -> Exception:
    if isinstance(answer, Trouble) and answer.kind == "full":
        return StorageFull()
    return StoreUnavailable()
