"""The server's side of the writer process: starts it, sends batches, receives reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from clarion.child_process import Child, open_child, read, write
from clarion.errors import StorageFull, StoreUnavailable
from clarion.store.batch import Failed, Outcome, arrange
from clarion.store.sqlite.child import Answer, Finished, Opened, Scrubbed, Trouble
from clarion.store.statement import Unit

# How long the process may take to exit.
_END_S = 5.0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode
# Text that is not valid Unicode, a number beyond 64 bits, a value of another type.
_UNSENDABLE = (OverflowError, TypeError, ValueError)


async def begin_writer() -> Child:
    """Start the process, which then waits for the path of its database."""
    return await open_child("clarion.store.sqlite.child")


class WriterProcess:
    """A batch runner in a process of its own.

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
        # One message at a time: the next is sent when the last is answered.
        self._turn = asyncio.Lock()
        self._watch = asyncio.get_running_loop().create_task(self._watch_exit())

    @classmethod
    async def start(
        cls, path: str, on_broken: Callable[[str], None], begun: Child | None = None
    ) -> WriterProcess:
        """Start the process, unless it has begun already, and wait until the database is open."""
        child = begun or await begin_writer()
        write(child.writer, path.encode())
        self = cls(*child, on_broken)
        try:
            answer = await self._receive()
        except EOFError as error:
            raise StoreUnavailable(
                "the writer process exited before it had opened the database"
            ) from error
        if not isinstance(answer, Opened):
            await self.close()
            raise _error_of(answer)
        return self

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        if self._is_broken:
            raise StoreUnavailable
        try:
            message = _encode(arrange(units))
        except _UNSENDABLE:
            return await self._run_sendable(units)
        answer = await self._ask(message)
        if isinstance(answer, Finished):
            return answer.report.outcomes(units)
        if isinstance(answer, Trouble) and answer.kind == "broken":
            self._break(answer.message)
        raise _error_of(answer)

    async def scrub(self, first_page: int) -> Scrubbed | None:
        """Remove what was deleted from the log and from some pages; None if somebody reads."""
        if self._is_broken:
            raise StoreUnavailable
        answer = await self._ask(_encode(first_page))
        if isinstance(answer, Trouble):
            if answer.kind == "broken":
                self._break(answer.message)
            raise _error_of(answer)
        return answer if isinstance(answer, Scrubbed) else None

    async def _ask(self, message: bytes) -> Answer:
        async with self._turn:
            try:
                write(self._writer, message)
                return await self._receive()
            except (EOFError, OSError) as error:
                self._break("the writer process exited")
                raise StoreUnavailable from error

    async def close(self) -> None:
        """Let the process exit, and kill it if it does not; its last batch is then unknown."""
        self._is_broken = True
        self._writer.close()
        _, hanging = await asyncio.wait([self._watch], timeout=_END_S)
        if hanging:
            self._process.kill()
            await self._watch

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

    async def _receive(self) -> Answer:
        answer: Answer = _decode(await read(self._reader))
        return answer

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
