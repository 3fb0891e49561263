"""SMTP servers on loopback: a real one (aiosmtpd), and one that does as a script says."""

import asyncio
import datetime as dt
import email
import email.policy
import ssl
import time
import warnings
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from clarion.http.certificates import DevelopmentTls, load_context

USERNAME, PASSWORD = "clarion", "pass wörd"


class Authority:
    """A certificate authority, and the server's certificate for `localhost` and 127.0.0.1."""

    def __init__(self, folder: Path, *, days_ago: int = 0) -> None:
        files = DevelopmentTls(folder)
        folder.mkdir()
        files.ensure(dt.datetime.now(dt.UTC) - dt.timedelta(days=days_ago))
        self.ca_path = str(files.ca)
        self.context = load_context(files.certificate, files.key)


@dataclass
class MailServer:
    """Takes messages after STARTTLS, or over TLS, from those who know the password."""

    authority: Authority
    is_tls: bool = False
    envelopes: list[Envelope] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    most: int = 0  # open at a time
    reply: str = "250 2.0.0 Queued as 4711"
    has_utf8: bool = True
    delay_s: float = 0.0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        context = self.authority.context if self.is_tls else None
        self._server = await loop.create_server(self._make, "127.0.0.1", 0, ssl=context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._protocols: list[SMTP] = []
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        self.drop()
        await asyncio.sleep(0)

    def drop(self) -> None:
        """Close all connections."""
        for each in self._protocols:
            if each.transport:
                each.transport.close()

    @property
    def messages(self) -> list[EmailMessage]:
        return [
            email.message_from_bytes(each.original_content or b"", policy=email.policy.default)
            for each in self.envelopes
        ]

    def _make(self) -> SMTP:
        counted = self

        class Counted(SMTP):
            def connection_made(self, transport: Any) -> None:
                # After STARTTLS it is made a second time.
                if self.transport is None:
                    counted.connections += 1
                    counted.open += 1
                    counted.most = max(counted.most, counted.open)
                super().connection_made(transport)

            def connection_lost(self, error: Exception | None) -> None:
                counted.open -= 1
                super().connection_lost(error)

        with warnings.catch_warnings():
            # It warns that TLS is not required, since the listener has it.
            warnings.simplefilter("ignore")
            made = Counted(
                self,
                hostname="mail.example.com",
                enable_SMTPUTF8=self.has_utf8,
                tls_context=None if self.is_tls else self.authority.context,
                require_starttls=not self.is_tls,
                auth_required=True,
                auth_require_tls=not self.is_tls,
                authenticator=self._authenticate,
                loop=asyncio.get_running_loop(),
            )
        self._protocols.append(made)
        return made

    def _authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        is_right = (data.login, data.password) == (USERNAME.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        await asyncio.sleep(self.delay_s)
        self.envelopes.append(envelope)
        return self.reply


@dataclass
class ScriptedServer:
    """Answers each command by its script.

    A value is the answer, or an action: `reset`, `close`, `hang`, `half` an answer, or `slow`: one
    byte a second. The name of the step after the message is `END`, of the first one `HELLO`.
    """

    script: dict[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None
    is_tls: bool = False
    seen: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of the messages
    connections: int = 0
    received: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0  # any free one

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.context if self.is_tls else None
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._tasks: set[asyncio.Task[Any]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        # Over TLS, both sides take a few turns to close.
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.append(writer)
        self.connections += 1
        try:
            await self._answer("HELLO", "220 ready", writer)
            while line := await reader.readline():
                await self._obey(line.decode().strip(), reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _obey(
        self, line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        verb = line.split(maxsplit=1)[0].upper()
        self.seen.append(verb)
        if verb == "DATA":
            await self._answer("DATA", "354 go on", writer)
            if not self.script.get("DATA", "354").startswith("354"):
                return
            self.messages.append(await reader.readuntil(b"\r\n.\r\n"))
            self.times.append(time.monotonic())
            self.received.set()
            await self._answer("END", "250 2.0.0 taken", writer)
            return
        await self._answer(verb, "250 ok", writer)
        if verb == "STARTTLS" and self.script.get(verb, "").startswith("220"):
            await writer.start_tls(self.context)  # type: ignore[arg-type]
        if verb == "QUIT":
            writer.close()

    async def _answer(self, step: str, usual: str, writer: asyncio.StreamWriter) -> None:
        match self.script.get(step, usual):
            case "reset":
                writer.transport.abort()
                raise ConnectionResetError
            case "close":
                writer.close()
                raise ConnectionResetError
            case "hang":
                await asyncio.sleep(3600)
            case "half":
                writer.write(f"{usual[:3]}-and then".encode())
                await asyncio.sleep(3600)
            case "slow":
                for byte in f"{usual}\r\n".encode():
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(1)
            case text:
                writer.write(f"{text}\r\n".encode())
                await writer.drain()
