"""Any service of Apprise as a provider, by its URL; needs the extra `clarion[apprise]`.

Apprise says only whether a message was sent, so that its answers are a short table.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from urllib.parse import parse_qsl, quote
from weakref import WeakKeyDictionary

import msgspec

from clarion.catalog.model import Channel
from clarion.channels.answers import Action, Answer, AnswerTable
from clarion.channels.apprise_process import AppriseMessage
from clarion.channels.apprise_schemes import ALLOWED
from clarion.channels.http_clients import HttpClients
from clarion.channels.kinds import Nothing, ProviderKind
from clarion.channels.model import BUSY, Configuration, NotTried, Outcome, OutgoingMessage
from clarion.channels.port import SenderContext
from clarion.errors import FieldFault
from clarion.system.child_process import open_child, read, write

# Of the whole server: one takes about 70 MB. An app has at most half of them at a time.
PROCESSES = 4
APP_PROCESSES = PROCESSES // 2
URL_LIMIT = 2_000
# Stands for the user's address in a URL: behind the host, so that it cannot lead elsewhere.
ADDRESS = "{to}"
_URL = re.compile(r"([a-z0-9]{2,20})://([^/?#{}]*)([/?#].*)?", re.ASCII)
_PRINTABLE = re.compile(rf"[!-~]{{1,{URL_LIMIT}}}", re.ASCII)
_ADDRESS = re.compile(r"[A-Za-z0-9+@._-]{1,320}", re.ASCII)
# Nothing else of our environment is the business of a service: no proxy, no home, no secrets.
_VARIABLES = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
_SPARE_S = 1.0

ANSWERS = AnswerTable(
    Answer("accepted", Action.DELIVERED, "Apprise has sent the message."),
    Answer("failed", Action.RETRY, "Apprise has not sent it; it does not say why."),
    Answer(BUSY, Action.RETRY, "No process was free within the time-out."),
    Answer("no_process", Action.RETRY, "The process for Apprise cannot be started."),
    Answer("timed_out", Action.SAME_PROVIDER, "The message took longer than the time-out."),
    Answer(
        "broken", Action.SAME_PROVIDER, "An error after the request was sent, or the process ended."
    ),
    Answer("bad_address", Action.REJECT, "The URL has {to}, and the user has no such address."),
    Answer("bad_url", Action.DISABLE, "Apprise cannot read the URL, or it turns certificates off."),
    Answer("target_refused", Action.DISABLE, "The URL leads to a private address."),
    Answer("not_installed", Action.DISABLE, "Apprise is missing: install clarion[apprise]."),
    default=Action.SAME_PROVIDER,
)
_MEANINGS = {row.code: row.meaning for row in ANSWERS.rows}


class AppriseSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The URL of the service as Apprise takes it: it has the credentials."""

    url: str


class _Process:
    """A process that sends one message at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def start(cls, networks: list[str]) -> _Process:
        environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        quiet = asyncio.subprocess.DEVNULL
        return cls(
            *await open_child(
                "clarion.channels.apprise_process",
                *networks,
                env=environment,
                stdout=quiet,
                stderr=quiet,
            )
        )

    async def run(self, message: bytes) -> str:
        """Return the result of a message; `EOFError` or `OSError` if the process ended."""
        write(self._writer, message)
        return (await read(self._reader)).decode()

    async def kill(self) -> None:
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


class AppriseProcesses:
    """The processes of a server, shared by all apps."""

    def __init__(self, networks: list[str]) -> None:
        self._networks = networks
        self._idle: list[_Process] = []
        self._running: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self.senders = 0

    @contextlib.asynccontextmanager
    async def take(self, app_id: str, wait_s: float) -> AsyncIterator[_Process]:
        """Wait for a process; `TimeoutError` if none gets free.

        If its message does not end well, it is killed.
        """
        async with asyncio.timeout(wait_s), self._changed:
            await self._changed.wait_for(lambda: self._has_room(app_id))
            self._running[app_id] += 1
        process = None
        try:
            process = self._idle.pop() if self._idle else await _Process.start(self._networks)
            yield process
            self._idle.append(process)
        except BaseException:
            if process:
                await process.kill()
            raise
        finally:
            self._running -= Counter({app_id: 1})
            async with self._changed:
                self._changed.notify_all()

    async def close(self) -> None:
        """End the idle processes."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(each.kill() for each in idle))

    def _has_room(self, app_id: str) -> bool:
        return self._running[app_id] < APP_PROCESSES and self._running.total() < PROCESSES


# One set for each server; senders know the server by its HTTP clients.
_PROCESSES: WeakKeyDictionary[HttpClients, AppriseProcesses] = WeakKeyDictionary()


class AppriseSender:
    """The `Sender` port."""

    def __init__(
        self, configuration: Configuration[Nothing, AppriseSecrets], context: SenderContext
    ) -> None:
        self._app_id = configuration.app_id
        self._url = configuration.secrets.url
        # The caller would cancel what takes longer than that.
        self._timeout_s = max(configuration.timeout_s - _SPARE_S, configuration.timeout_s / 2)
        networks = list(map(str, context.http.targets.allowed))
        self._processes = _PROCESSES.setdefault(context.http, AppriseProcesses(networks))
        self._processes.senders += 1

    async def send(self, message: OutgoingMessage) -> Outcome:
        if not _is_installed():
            return _judge("not_installed")
        url = _fill_in(self._url, message.address.value)
        if url is None:
            return _judge("bad_address")
        given = AppriseMessage(url, message.subject or "", message.body, self._timeout_s)
        return _judge(await self._run(msgspec.json.encode(given)))

    async def close(self) -> None:
        self._processes.senders -= 1
        if not self._processes.senders:
            await self._processes.close()

    async def _run(self, message: bytes) -> str:
        """Return the code of what came of a message."""
        code = BUSY
        # What waited for long would have no time left to be sent.
        taking = self._processes.take(self._app_id, self._timeout_s / 2)
        try:
            async with asyncio.timeout(self._timeout_s), taking as process:
                code = "timed_out"
                return await process.run(message)
        except TimeoutError:
            return code
        except (EOFError, OSError):
            return "no_process" if code == BUSY else "broken"


def _judge(code: str) -> Outcome:
    if code == BUSY:
        return NotTried(error_code=BUSY, error_message=_MEANINGS[BUSY], after_s=1.0)
    return ANSWERS.judge((code,), _MEANINGS[code], response="sent by Apprise")


def _is_installed() -> bool:
    return importlib.util.find_spec("apprise") is not None


def _fill_in(url: str, address: str) -> str | None:
    """Return the URL with the user's address; None if the address is needed but missing."""
    if ADDRESS not in url:
        return url
    if not _ADDRESS.fullmatch(address):
        return None
    return url.replace(ADDRESS, quote(address, safe=""))


def _find_faults(_settings: Nothing, secrets: AppriseSecrets) -> Iterator[FieldFault]:
    """Check the URL without Apprise, whose plugins take a while to load."""
    if not _is_installed():
        yield FieldFault("kind", "needs Apprise: install clarion[apprise]")
    found = _URL.fullmatch(secrets.url)
    if found is None or not _PRINTABLE.fullmatch(secrets.url):
        reason = (
            f"must be the URL of a service of Apprise, like discord://…, with at most "
            f"{URL_LIMIT:,} ASCII characters; {ADDRESS} can stand in its path or query only"
        )
        yield FieldFault("secrets.url", reason)
    elif found[1] not in ALLOWED:
        yield FieldFault("secrets.url", f"must not have the scheme {found[1]}")
    elif any(name.strip().lower() == "verify" for name, _ in _read_query(secrets.url)):
        yield FieldFault("secrets.url", "must not have `verify`: certificates are always verified")


def _read_query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("?")[2].lstrip("?"), keep_blank_values=True)


APPRISE = ProviderKind(
    needs_address=False,
    name="apprise",
    channels=frozenset({Channel.PUSH, Channel.EMAIL, Channel.SMS, Channel.WEBHOOK}),
    open=AppriseSender,
    answers=ANSWERS,
    secrets=AppriseSecrets,
    find_faults=_find_faults,
)
