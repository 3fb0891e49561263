"""A process that sends through Apprise: one message after the other, each for any provider.

Apprise runs here rather than in the server because it blocks, reads responses of any size, follows
redirects, and can read files. A hook that Python calls before such operations checks the address
of every connection, and refuses files, programs and datagrams; the memory is limited. A message
that takes too long is ended with the process.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from clarion.channels.networks import Network, is_refused
from clarion.system.child_process import receive, send

# Of addresses, which are more than the memory in use.
MEMORY_LIMIT_BYTES = 1 << 29
_REFUSED_EVENTS = frozenset(
    {
        "ctypes.dlopen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.remove",
        "os.rename", "os.system", "pty.spawn", "socket.bind", "socket.sendmsg", "socket.sendto",
        "subprocess.Popen", "syslog.openlog", "syslog.syslog",
    }
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Python's own files. Modules are loaded from there while a message is sent.
_INSTALLED = tuple(
    f"{os.path.realpath(each)}{os.sep}"
    for each in {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *sys.path}
    if each
)
_INET = (socket.AF_INET, socket.AF_INET6)


class AppriseMessage(msgspec.Struct, frozen=True):
    """What to send, and where."""

    url: str
    title: str
    body: str
    timeout_s: float


class AppriseResult(StrEnum):
    """What came of it; the names are codes of the answer table."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    BAD_URL = "bad_url"
    TARGET_REFUSED = "target_refused"
    BROKEN = "broken"


class Guard:
    """Refuses everything that a message must not do; from `arm` on, permanently, in all threads."""

    def __init__(self, *allowed: Network) -> None:
        self._allowed = allowed
        self.has_refused = False

    def arm(self) -> None:
        sys.addaudithook(self.check)

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise `PermissionError`, which libraries treat as any error of the network or disk."""
        if event in _REFUSED_EVENTS:
            raise PermissionError(event)
        if event == "open":
            _check_file(*arguments)
        elif event == "socket.connect":
            self._check_connection(*arguments)

    def _check_connection(self, connection: socket.socket, address: Any) -> None:
        is_datagram = connection.type & socket.SOCK_DGRAM
        if connection.family not in _INET or is_datagram or not self._may_call(address[0]):
            self.has_refused = True
            raise PermissionError("socket.connect")

    def _may_call(self, address: str) -> bool:
        """Whether it is an address (not a name) that may be called.

        The library has already resolved the name, so the checked address is the one it connects to.
        """
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return not is_refused(found, self._allowed)


def _check_file(path: Any, mode: str | None, flags: int) -> None:
    if isinstance(path, int):
        return
    is_written = flags & _WRITING or (mode and mode.strip("rbtU"))
    real = os.path.realpath(os.fsdecode(path))
    if is_written or not real.startswith(_INSTALLED):
        raise PermissionError("open")


class Errors(logging.Handler):
    """Notes errors after which a message may have arrived: Apprise catches and logs them all."""

    has_any = False

    def emit(self, record: logging.LogRecord) -> None:
        del record
        error = sys.exception()
        if error is not None and not _is_before_sending(error):
            self.has_any = True


def _is_before_sending(error: BaseException) -> bool:
    """Whether an error came before the request was sent: no connection, or no valid certificate."""
    from requests.exceptions import ConnectTimeout, SSLError  # noqa: PLC0415 - comes with Apprise
    from urllib3.exceptions import NewConnectionError  # noqa: PLC0415

    reason = getattr(error.args[0], "reason", None) if error.args else None
    return isinstance(error, ConnectTimeout | SSLError) or isinstance(reason, NewConnectionError)


def deliver(message: AppriseMessage, guard: Guard, errors: Errors) -> AppriseResult:
    """Send a message, and return what came of it."""
    guard.has_refused = errors.has_any = False
    try:
        is_sent = _notify(message)
    except Exception:  # noqa: BLE001 - a plugin may fail in any way, and its words may be secret
        return AppriseResult.BROKEN
    if is_sent:
        return AppriseResult.ACCEPTED
    if guard.has_refused:
        return AppriseResult.TARGET_REFUSED
    if is_sent is None:
        return AppriseResult.BAD_URL
    return AppriseResult.BROKEN if errors.has_any else AppriseResult.FAILED


def _notify(message: AppriseMessage) -> bool | None:
    """Return whether Apprise has sent a message; None if it cannot read the URL."""
    from apprise import Apprise, AppriseAsset, NotifyFormat  # noqa: PLC0415 - an optional extra

    # In this thread, and without a cache on the disk.
    asset = AppriseAsset(async_mode=False, storage_mode="memory")
    plugin = Apprise.instantiate(message.url, asset=asset)
    if plugin is None or not plugin.verify_certificate:
        return None
    # Clarion retries by itself. Attributes that the release of Apprise does not have do no harm.
    for name, value in {"retry": 0, "wait": 0.0, "redirects": False}.items():
        setattr(plugin, name, value)
    plugin.socket_connect_timeout = plugin.socket_read_timeout = message.timeout_s
    service = Apprise(asset=asset)
    service.add(plugin)
    result = service.notify(body=message.body, title=message.title, body_format=NotifyFormat.TEXT)
    return bool(result)


def serve(channel: socket.socket, guard: Guard, errors: Errors) -> None:
    """Send messages until the other side closes the socket."""
    decode: Callable[[bytes], AppriseMessage] = msgspec.json.Decoder(AppriseMessage).decode
    while received := receive(channel):
        send(channel, deliver(decode(received), guard, errors).value.encode())


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


def _load() -> Errors:
    """Load all plugins: each message then needs but its own time."""
    from apprise import Apprise  # noqa: PLC0415 - an optional extra

    Apprise.instantiate("json://localhost")
    logger, errors = logging.getLogger("apprise"), Errors()
    logger.handlers, logger.propagate = [errors], False
    return errors


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; the server ends this process by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _limit_resources()
    noted = _load()
    own = Guard(*map(ipaddress.ip_network, sys.argv[2:]))
    own.arm()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])), own, noted)
