"""The HTTP listeners: Granian, embedded in our event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from clarion.errors import StartError
from clarion.setting_types import Address

CONNECTIONS = 20_000
# As Apple's. A client can open so many before it knows the limit: aioapns assumes 1,000, and waits
# forever for a push that is refused beyond the limit.
_STREAMS = 1_000
_START_TIMEOUT_S = 10.0
_START_POLL_S = 0.01


class HttpListener:
    """Serves HTTP on one address."""

    def __init__(
        self,
        app: Any,
        address: Address,
        *,
        max_header_bytes: int,
        connections: int = CONNECTIONS,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self._server = Server(
            app,
            address=address.host,
            port=address.port,
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            websockets=False,
            backlog=1024,
            backpressure=connections,  # counts connections, not requests
            http1_settings=HTTP1Settings(
                header_read_timeout=10_000,  # in milliseconds
                max_buffer_size=max_header_bytes,
            ),
            http2_settings=HTTP2Settings(
                max_concurrent_streams=_STREAMS,
                max_headers_size=max_header_bytes,
                keep_alive_interval=30_000,  # in milliseconds
                keep_alive_timeout=10,  # in seconds
            ),
            log_enabled=False,
            ssl_cert=certificate,
            ssl_key=key,
            ssl_protocol_min=SSLProtocols.tls12,
        )
        self._address = address
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self, on_failed: Callable[[str], None]) -> None:
        """Listen, and return when connections are accepted; `on_failed` is called if that ends."""

        def report(task: asyncio.Task[None]) -> None:
            if not self._is_stopping and not task.cancelled():
                on_failed(f"the listener on {self._address} stopped: {task.exception()!r}")

        self._task = asyncio.get_running_loop().create_task(self._server.serve())
        self._task.add_done_callback(report)
        async with asyncio.timeout(_START_TIMEOUT_S):
            # Granian does not report when it listens, so we try to connect.
            while not self._task.done() and not await self._is_listening():  # noqa: ASYNC110
                await asyncio.sleep(_START_POLL_S)

    async def _is_listening(self) -> bool:
        try:
            _, writer = await asyncio.open_connection(self._address.host, self._address.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self, grace_s: float) -> None:
        """Accept no more requests and wait for running ones, at most `grace_s`."""
        if self._task is None:
            return
        self._is_stopping = True
        self._server.stop()  # type: ignore[no-untyped-call]
        done, _ = await asyncio.wait([self._task], timeout=grace_s)
        if not done:
            self._task.cancel()


def check_free(addresses: Iterable[tuple[str, Address]]) -> None:
    """Raise a `StartError` that names every address that cannot be listened on."""
    faults = [fault for flag, address in addresses if (fault := _try_bind(flag, address))]
    if faults:
        raise StartError("\n".join(faults))


def _try_bind(flag: str, address: Address) -> str | None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(found[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[4])
    except OSError as error:
        return f"{flag}: {_explain(address, error)}"
    return None


def _explain(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {address.port} is in use. Stop the program that uses it, or choose another port."
        )
    if error.errno == errno.EACCES:
        return f"this account may not listen on port {address.port}. Choose one above 1023."
    return f"cannot listen on {address} ({error.strerror}). Choose an address of this machine."
