"""HTTP clients for providers: pooled, limited, and able to tell whether a request was sent.

Redirects are not followed, no proxy is taken from the environment, and a response is read up to
64 kB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import DetailedPyreqwestError, PoolTimeoutError, PyreqwestError

from clarion.channels.targets import Target, Targets, split

RESPONSE_LIMIT_BYTES = 64 * 1024
# Beyond these the client that was used longest ago is closed.
CLIENTS_LIMIT = 256
_IDLE_S = 300.0
# Shorter than the time of a request, so that a service that is down is known to be.
_CONNECT_TIMEOUT_S = 5.0
_CONNECTING = "client error (Connect)"


class NotConnected(Exception):
    """The request was not sent."""


class NoAnswer(Exception):
    """The request was sent, at least in part; no complete answer came."""


class HttpAnswer(NamedTuple):
    """The answer to a request; `headers` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Key(NamedTuple):
    target: Target
    ca_path: str | None
    is_guarded: bool


class HttpClients:
    """Clients by target: each has its own connections, to the address that was checked."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        # The one used longest ago is first.
        self._clients: dict[_Key, Client] = {}

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        ca_path: str | None = None,
        is_trusted: bool = False,
    ) -> HttpAnswer:
        """Send a request and return the answer.

        `is_trusted` is for URLs that only the operator can set: their address is not checked.
        `NotConnected` if it was not sent, `NoAnswer` if it may have arrived; `TargetRefused` if
        the URL leads where Clarion must not call.
        """
        client = await self._find(url, ca_path, is_trusted=is_trusted)
        request = client.post(url).headers(dict(headers)).body_bytes(body)
        request = request.timeout(timedelta(seconds=timeout_s))
        try:
            async with request.build_streamed() as response:
                answer = await _read(response.body_reader, RESPONSE_LIMIT_BYTES)
                found = {name.lower(): value for name, value in response.headers.items()}
                return HttpAnswer(response.status, found, answer)
        except (PyreqwestError, TimeoutError) as error:
            kind = NotConnected if _is_unsent(error) else NoAnswer
            raise kind(_explain(error)) from error

    async def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(client.close() for client in clients.values()))

    async def _find(self, url: str, ca_path: str | None, *, is_trusted: bool) -> Client:
        try:
            if is_trusted:
                target = Target(*split(url), "")
            else:
                target = await self.targets.resolve(url)
        except (OSError, TimeoutError) as error:
            raise NotConnected(f"the name of the host cannot be resolved ({error})") from error
        key = _Key(target, ca_path, not is_trusted)
        client = self._clients.pop(key, None)
        if client is None:
            # Reading the certificates of the system takes a few milliseconds.
            client = await asyncio.to_thread(partial(_build, target, ca_path))
        self._clients[key] = client
        if len(self._clients) > CLIENTS_LIMIT:
            oldest = next(iter(self._clients))
            await self._clients.pop(oldest).close()
        return client


def _build(target: Target, ca_path: str | None) -> Client:
    builder = (
        ClientBuilder()
        .no_proxy()
        .follow_redirects(enable=False)
        .connect_timeout(timedelta(seconds=_CONNECT_TIMEOUT_S))
        .pool_idle_timeout(timedelta(seconds=_IDLE_S))
        .http2_keep_alive_interval(timedelta(seconds=30))
        .http2_keep_alive_timeout(timedelta(seconds=10))
        .user_agent("Clarion")
    )
    if target.address:
        builder = builder.resolve(target.host, target.address, target.port)
    if ca_path is not None:
        builder = builder.add_root_certificate_pem(Path(ca_path).read_bytes())
    return builder.build()


async def _read(reader: object, limit: int) -> bytes:
    """Read a body up to a limit; the rest is not read."""
    parts, size = [], 0
    while size < limit and (part := await reader.read_chunk()):  # type: ignore[attr-defined]
        parts.append(bytes(part)[: limit - size])
        size += len(parts[-1])
    return b"".join(parts)


def _is_unsent(error: BaseException) -> bool:
    """Return whether it is certain that nothing of the request was sent.

    Everything before the answer is a `ConnectError` to pyreqwest; its causes tell more.
    """
    if isinstance(error, PoolTimeoutError):
        return True
    causes = error.details["causes"] if isinstance(error, DetailedPyreqwestError) else None
    return any(cause["message"] == _CONNECTING for cause in causes or ())


def _explain(error: BaseException) -> str:
    """Return what happened without the URL, which may be a secret."""
    return type(error).__name__
