"""What a parent starts: `python -m clarion.app.processes.child DESCRIPTOR`, a socket of control."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

import uvloop

from clarion.app.processes.control import receive_start, write_failure
from clarion.app.processes.member import Member
from clarion.app.server import Server
from clarion.cli.set_up import set_up
from clarion.errors import ClarionError
from clarion.system.data_directory import PRIVATE_UMASK
from clarion.telemetry import logs

EXIT_CANNOT_RUN = 2


def main() -> int:
    """Serve until the parent says so or ends."""
    os.umask(PRIVATE_UMASK)
    # Ctrl-C reaches every process of a terminal; the parent forwards it when all can handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        start, ends = receive_start(control)
    except EOFError:
        return EXIT_CANNOT_RUN
    settings = start.settings
    logs.configure(settings.log_level, settings.log_format, process=start.number)
    logs.log_uncaught()

    async def run() -> int:
        return await Server(settings, set_up, Member(control, start, ends)).run()

    try:
        return uvloop.run(run())
    except ClarionError as error:
        with contextlib.suppress(OSError):  # the parent has ended
            control.send(write_failure(error.detail))
        return EXIT_CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main())
