"""Starts `clarion` without importing it each time: a process that has done so forks.

What it starts is a process like any other, with its own environment, output, session and exit code;
only half a second of imports is left out, and that the interpreter destroys all objects when it
ends. A test of the interpreter's own start and end uses none of this.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, Protocol

from clarion.system.child_process import Child

CLARION = (sys.executable, "-m", "clarion")
WRITER = "clarion.store.sqlite.child"
REQUEST_LIMIT = 1 << 20
# Standard input, output and error of the new process, and where its exit code is written.
STREAMS = 4
# More than the fork server has open.
DESCRIPTORS = 1024


class Process(Protocol):
    """What tests do with a process, as `subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A process that the fork server has started."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("clarion", timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait_async(self) -> int:
        """Wait as `asyncio.subprocess.Process` does."""
        if self.returncode is None:
            self._status.settimeout(0)
            self.returncode = int(await asyncio.get_running_loop().sock_recv(self._status, 16))
            self._status.close()
        return self.returncode

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = int(self._status.recv(16))
            except (TimeoutError, BlockingIOError):
                return None
            self._status.close()
        return self.returncode


class Link(NamedTuple):
    """The fork server of this process."""

    socket: socket.socket
    pid: int


@cache
def connect() -> Link:
    """Start the fork server of this process; it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
    atexit.register(server.wait)
    atexit.register(ours.close)  # called first
    return Link(ours, server.pid)


def is_clarion(command: Sequence[str]) -> bool:
    return tuple(command[: len(CLARION)]) == CLARION


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
    folder: Path | None = None,
) -> Forked:
    """Run what begins with CLARION, with these streams, in a session of its own."""
    assert is_clarion(command)
    return fork("clarion", command[len(CLARION) :], environment, streams, folder)


def fork(
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[int],
    folder: Path | None = None,
) -> Forked:
    """Run a module, as `python -m` does."""
    status, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = {
        "module": module,
        "arguments": arguments,
        "environment": {**environment},
        "folder": str(folder or Path.cwd()),
    }
    with other:
        message = json.dumps(request).encode()
        socket.send_fds(connect().socket, [message], [*streams, other.fileno()])
    return Forked(int(status.recv(16)), status)


class ForkedWriter(NamedTuple):
    """A writer process of SQLite, as `Child` has it."""

    forked: Forked

    @property
    def pid(self) -> int:
        return self.forked.pid

    def kill(self) -> None:
        self.forked.kill()

    async def wait(self) -> int:
        return await self.forked.wait_async()


async def begin_writer() -> Child:
    """Start a writer process; to import what it needs takes five times as long."""
    ours, theirs = socket.socketpair()
    with theirs:
        error = sys.stderr.fileno()
        forked = fork(WRITER, ["0"], os.environ, [theirs.fileno(), error, error])
    ours.setblocking(False)  # noqa: FBT003 - the socket's own signature
    process: Any = ForkedWriter(forked)
    return Child(process, *await asyncio.open_connection(sock=ours))


def run(
    command: Sequence[str], environment: Mapping[str, str], typed: str, limit_s: float
) -> subprocess.CompletedProcess[str]:
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as printed,
        tempfile.TemporaryFile("w+") as errors,
    ):
        given.write(typed)
        given.seek(0)
        process = start(command, environment, [f.fileno() for f in (given, printed, errors)])
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, code, _read(printed), _read(errors))


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


class ForkServer:
    """Answers each request with the pid of a new process, and later with its exit code."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._running: dict[int, socket.socket] = {}
        self._ended, self._wake = socket.socketpair()
        self._wake.settimeout(0)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> str | None:
        """Return the module in each new process, and None in this one when its owner is gone."""
        selector = selectors.PollSelector()  # has no descriptor that a new process would inherit
        selector.register(self._link, selectors.EVENT_READ)
        selector.register(self._ended, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if self._ended in ready:
                self._ended.recv(4096)
                self._report_ended()
            if self._link in ready:
                message, streams, _, _ = socket.recv_fds(self._link, REQUEST_LIMIT, STREAMS)
                if not message:
                    self._kill_all()
                    return None
                if module := self._fork(json.loads(message), streams):
                    return module

    def _kill_all(self) -> None:
        """Leave nothing behind of a test run that was killed."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, request: Mapping[str, Any], streams: list[int]) -> str | None:
        pid = os.fork()
        if pid == 0:
            for link in (self._link, self._ended, self._wake, *self._running.values()):
                link.detach()
            return become(request, streams)
        status = socket.socket(fileno=streams.pop())
        status.send(str(pid).encode())
        self._running[pid] = status
        for each in streams:
            os.close(each)
        return None

    def _report_ended(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._running.pop(pid) as link:
                link.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: Mapping[str, Any], streams: list[int]) -> str:
    """Make of this process what was asked for, and return the module that it is to run."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, each in enumerate(streams[:3]):
        os.dup2(each, number)
    os.closerange(3, DESCRIPTORS)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module: str = request["module"]
    sys.argv = [module, *request["arguments"]]
    return module


def import_all() -> None:
    """Import the commands, and what a server imports when it starts."""
    import clarion.cli  # noqa: PLC0415 - the tests themselves need none of it

    for module in pkgutil.walk_packages(clarion.cli.__path__, "clarion.cli."):
        importlib.import_module(module.name)
    for name in ("server", "management", "processes.parent", "processes.member"):
        importlib.import_module(f"clarion.app.{name}")
    gc.collect()
    gc.freeze()


def end(code: object) -> NoReturn:
    """End this process as the interpreter does, but for the objects that are left."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))


if __name__ == "__main__":
    import_all()
    chosen = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if chosen is not None:
        try:
            # Called from here: JSON may be as deep as the stack allows.
            if chosen == "clarion":
                from clarion.cli.main import main

                sys.exit(main())
            runpy.run_module(chosen, run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            end(ended.code)
        except BaseException:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
            end(1)
        end(0)
