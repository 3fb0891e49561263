"""The server's side of a process of the sandbox: starts it, sends a job, receives the answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from clarion.settings import PREFIX
from clarion.system.child_process import open_child, read, write

# A job may have to wait for a processor. Its processor time is limited by the kernel.
WALL_LIMIT_S = 10.0


class ProcessEnded(Exception):
    """The process ended during a job: `cpu`, `wall` or `crash`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SandboxProcess:
    """One process, which does one job at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.jobs = 0

    @classmethod
    async def start(cls) -> SandboxProcess:
        return cls(
            *await open_child(
                "clarion.catalog.sandbox.child",
                # What a killed library prints is no line of the server's log.
                stderr=asyncio.subprocess.DEVNULL,
                # It needs no passwords.
                env={key: x for key, x in os.environ.items() if not key.startswith(PREFIX)},
            )
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, message: bytes) -> bytes:
        """Return the answer to a job; `ProcessEnded` if the process does not survive it."""
        self.jobs += 1
        try:
            async with asyncio.timeout(WALL_LIMIT_S):
                write(self._writer, message)
                return await read(self._reader)
        except TimeoutError:
            await self.kill()
            raise ProcessEnded("wall") from None
        except (EOFError, OSError):
            await self.kill()
            is_cpu = self._process.returncode == -signal.SIGPROF
            raise ProcessEnded("cpu" if is_cpu else "crash") from None

    async def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        self._writer.close()
        # It may be about to end by itself, by the signal that says why.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
