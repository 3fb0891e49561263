"""Messages between the parent and a process, over an unnamed socket for each process.

A message may carry descriptors. The socket closes when either side ends, for any reason.
"""

from __future__ import annotations

import array
import pickle
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clarion.settings import Settings

MESSAGE_BYTES = 128 * 1024
# As many processes as there may be.
_MOST_ENDS = 64
READY = b"ready"
ALL_READY = b"all ready"
_FAILED = b"failed "


@dataclass(frozen=True, slots=True)
class Start:
    """The first message to a process, with a socket to each process that runs already."""

    settings: Settings
    number: int
    others: tuple[int, ...]
    # All have been ready: this one takes the place of one that ended.
    is_restart: bool = False


def open_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a socket that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_start(control: socket.socket, start: Start, ends: Iterable[socket.socket]) -> None:
    _send(control, pickle.dumps(start), [end.fileno() for end in ends])


def receive_start(control: socket.socket) -> tuple[Start, list[socket.socket]]:
    """Return what to do, and the sockets to others; `EOFError` if the parent ended."""
    message, ends = _receive(control)
    if not message:
        raise EOFError
    start: Start = pickle.loads(message)  # noqa: S301 - from our parent, over a socket of ours
    return start, ends


def send_link(control: socket.socket, number: int, end: socket.socket) -> None:
    """Hand a process its socket to another one, which is about to start."""
    _send(control, str(number).encode(), [end.fileno()])


def receive_news(control: socket.socket) -> tuple[int, socket.socket] | bytes:
    """Wait for a socket to another process, or `ALL_READY`; empty if the parent ended."""
    message, ends = _receive(control)
    return (int(message), ends[0]) if ends else message


def write_failure(text: str) -> bytes:
    """Return the message of a process that cannot start."""
    return _FAILED + text.encode()[: MESSAGE_BYTES - len(_FAILED)]


def read_failure(message: bytes) -> str | None:
    """Return why a process cannot start, if it reported that."""
    if not message.startswith(_FAILED):
        return None
    return message.removeprefix(_FAILED).decode(errors="replace")


def _send(control: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    rights = array.array("i", descriptors)
    carried = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    control.sendmsg([message], carried)


def _receive(control: socket.socket) -> tuple[bytes, list[socket.socket]]:
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    try:
        message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, _MOST_ENDS, flags)
    except ConnectionError:
        return b"", []
    return message, [socket.socket(fileno=each) for each in descriptors]
