"""The parent of several processes: starts them, starts again those that end, and stops them all.

It serves nothing itself. It reserves the addresses, so that no other program takes them while
processes come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace

from clarion.app.processes import control
from clarion.app.processes.member import longest_stop_s
from clarion.app.server import EXIT_BROKEN, EXIT_OK, prepare_certificate
from clarion.errors import StartError
from clarion.http.listeners import reserve
from clarion.settings import Settings
from clarion.system.data_directory import DataDirectory
from clarion.telemetry.logs import get_logger

# The pause before a restart doubles with each end in a row: 0.5, 1, 2 … 30 s. A process that ran
# for a minute ends the row.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STABLE_S = 60.0
# How long the others may take to start once the first process serves: the database may be away for
# a moment. A fault that lasts longer ends the server.
START_S = 60.0
_SERVER_ID_LENGTH = 64


@dataclass(slots=True, eq=False)
class _Child:
    number: int
    process: asyncio.subprocess.Process
    control: socket.socket
    is_ready: bool = False
    failure: str | None = None


class ProcessGroup:
    """The processes of one server."""

    def __init__(self, settings: Settings, count: int) -> None:
        self._settings = settings
        self._count = count
        self._children: dict[int, _Child] = {}
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        # When the first process had started.
        self._serves_since: float | None = None
        self._has_been_ready = False
        self._failure: StartError | None = None
        self._exit_code = EXIT_OK

    async def run(self) -> int:
        """Run the processes until SIGTERM or SIGINT; return the exit code.

        `StartError` if one of them cannot start.
        """
        directory = DataDirectory(self._settings.data)
        directory.ensure()
        with reserve(self._settings.addresses):
            prepare_certificate(self._settings, directory)
            self._handle_signals()
            tasks: list[asyncio.Task[None]] = []
            try:
                await self._start_all(tasks)
                await self._stop.wait()
            finally:
                await self._end_all(tasks)
        if self._failure:
            raise self._failure
        get_logger().info("stopped", exit_code=self._exit_code)
        return self._exit_code

    async def _start_all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Start the first alone: it migrates the database, and says once if something is wrong."""
        loop = asyncio.get_running_loop()
        for last in (1, self._count):
            for number in range(len(tasks) + 1, last + 1):
                task = loop.create_task(self._keep(number))
                task.add_done_callback(lambda _: self._stop_all())
                tasks.append(task)
            await self._wait_until_ready(range(1, last + 1))
            self._serves_since = loop.time()
        if not self._stop.is_set():
            self._report_ready()

    def _report_ready(self) -> None:
        self._has_been_ready = True
        for child in self._children.values():
            with contextlib.suppress(OSError):  # it ended: that is noticed by its exit code
                child.control.send(control.ALL_READY)
        get_logger().info("ready", server_id=self._settings.server_id, processes=self._count)

    async def _wait_until_ready(self, numbers: Iterable[int]) -> None:
        while not self._stop.is_set() and not all(map(self._is_ready, numbers)):
            self._changed.clear()
            await self._changed.wait()

    def _is_ready(self, number: int) -> bool:
        child = self._children.get(number)
        return child is not None and child.is_ready

    async def _keep(self, number: int) -> None:
        """Run a process, and restart it when it ends, until the stop."""
        clock = asyncio.get_running_loop().time
        failures = 0
        while not self._stop.is_set():
            started_at = clock()
            code, error = await self._run(number)
            if self._stop.is_set():
                # One that was still starting has no handler of the signal yet.
                is_clean = code in (EXIT_OK, -signal.SIGTERM)
                self._exit_code = self._exit_code if is_clean else EXIT_BROKEN
                return
            if self._cannot_start(clock()):
                self._failure = StartError(error or f"Process {number} ended with code {code}.")
                return
            failures = 1 if clock() - started_at >= STABLE_S else failures + 1
            pause_s = min(FIRST_PAUSE_S * 2 ** (failures - 1), LONGEST_PAUSE_S)
            about = {"exit_code": code, "error": error, "restart_in_s": pause_s}
            get_logger().error("process_ended", process=number, **about)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()

    def _cannot_start(self, now: float) -> bool:
        """Whether a process that ended keeps the server from starting."""
        since = self._serves_since
        return not self._has_been_ready and (since is None or now - since >= START_S)

    async def _run(self, number: int) -> tuple[int, str | None]:
        """Run a process; return its exit code, and why it did not start if it said so."""
        try:
            child = await self._start(number)
        except OSError as error:
            return EXIT_BROKEN, f"Cannot start a process: {error.strerror}."
        return await self._follow(child), child.failure

    async def _start(self, number: int) -> _Child:
        ours, theirs = control.open_pair()
        ours.setblocking(False)  # noqa: FBT003 - the socket's own signature
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "clarion.app.processes.child", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        child = _Child(number, process, ours)
        self._link(child)
        self._children[number] = child
        if self._stop.is_set():
            process.terminate()
        return child

    def _link(self, child: _Child) -> None:
        """Connect a new process with each that runs, and start it."""
        others = tuple(self._children.values())
        with contextlib.ExitStack() as stack:
            ends = []
            for other in others:
                its, others_end = map(stack.enter_context, socket.socketpair())
                ends.append(its)
                # If it has just ended, or reads nothing, the new one sees the end of the socket.
                with contextlib.suppress(OSError):
                    control.send_link(other.control, child.number, others_end)
            start = control.Start(
                replace(self._settings, server_id=self._name(child.number)),
                child.number,
                tuple(other.number for other in others),
                is_restart=self._has_been_ready,
            )
            with contextlib.suppress(OSError):  # it ended: that is noticed by its exit code
                control.send_start(child.control, start, ends)

    def _name(self, number: int) -> str:
        """Return the name of a process: each is a node of its own."""
        end = f"-{number}"
        return self._settings.server_id[: _SERVER_ID_LENGTH - len(end)] + end

    async def _follow(self, child: _Child) -> int:
        """Handle the messages of a process, and return its exit code."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._read(child))
        try:
            code = await child.process.wait()
            await reading  # what it said last
        finally:
            reading.cancel()
            child.control.close()
            if self._children.get(child.number) is child:
                del self._children[child.number]
        return code

    async def _read(self, child: _Child) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while message := await loop.sock_recv(child.control, control.MESSAGE_BYTES):
                child.is_ready = child.is_ready or message == control.READY
                child.failure = control.read_failure(message)
                self._changed.set()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_all, number.name)

    def _stop_all(self, reason: str | None = None) -> None:
        """Stop the processes. Without a reason, one of them failed: the raised error says why."""
        if reason and not self._stop.is_set():
            get_logger().info("stopping", reason=reason, grace_s=self._settings.grace_s)
        self._stop.set()
        self._changed.set()
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()

    async def _end_all(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for all processes to end, and kill the others."""
        self._stop_all()
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=longest_stop_s(self._settings.grace_s))
        for child in self._children.values():
            get_logger().error("process_killed", process=child.number)
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
        if pending:
            await asyncio.wait(pending)
        for task in tasks:
            task.result()
