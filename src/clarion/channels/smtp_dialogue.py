"""The dialogue with an SMTP server: greeting, encryption, authentication, and one message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import aiosmtplib
from aiosmtplib import SMTPResponse
from aiosmtplib.errors import SMTPServerDisconnected

from clarion.channels.mail import Draft, build
from clarion.channels.smtp_connections import SmtpConnection

CLOSING = 421
TAKEN, _READY = frozenset({250, 251, 252}), frozenset({354})
Step = Literal["connect", "auth", "MAIL", "RCPT", "DATA"]
_Command = tuple[Step, frozenset[int], tuple[bytes, ...]]


class NotSent(Exception):
    """The message is not sent for a reason that has a row of its own in the table."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(slots=True)
class SmtpProgress:
    """How far an attempt has come."""

    step: Step = "connect"
    is_sent: bool = False  # the end of the message was written: the server may have it


async def greet(
    client: aiosmtplib.SMTP, *, is_starttls: bool, username: str | None, password: str
) -> None:
    """Connect, encrypt and authenticate; if that fails, the connection is closed."""
    try:
        await client.connect()
        await client.ehlo()
        if is_starttls:
            await _start_tls(client)
        if username is not None:
            await _log_in(client, username, password)
    except BaseException:
        client.close()
        raise


async def _start_tls(client: aiosmtplib.SMTP) -> None:
    # It must be offered: a third party may have removed it to read along.
    if not client.supports_extension("starttls"):
        raise NotSent("no_starttls", "The server offers no STARTTLS.")
    await client.starttls()
    await client.ehlo()


async def _log_in(client: aiosmtplib.SMTP, username: str, password: str) -> None:
    if not client.supported_auth_methods:
        raise NotSent("no_auth", "The server offers neither PLAIN, LOGIN nor CRAM-MD5.")
    await client.login(username, password)


async def transfer_unless_stale(
    connection: SmtpConnection, draft: Draft, progress: SmtpProgress
) -> SMTPResponse | None:
    """Return the answer; None if the server had closed the connection after an earlier message."""
    response = None
    try:
        response = await transfer(connection, draft, progress)
    except SMTPServerDisconnected:
        if not connection.is_reused or progress.step != "MAIL":
            raise
    is_closing = response is not None and response.code == CLOSING
    is_stale = is_closing and connection.is_reused and progress.step == "MAIL"
    return None if is_stale else response


async def transfer(
    connection: SmtpConnection, draft: Draft, progress: SmtpProgress
) -> SMTPResponse:
    """Send a message, and return the last answer: the server may refuse it at each step."""
    client = connection.client
    body, commands = _prepare(client, draft)
    progress.step = "MAIL"
    if connection.is_refused:
        await client.execute_command(b"RSET")
    for step, expected, command in commands:
        progress.step = step
        connection.is_clean = False
        response = await client.execute_command(*command)
        if response.code not in expected:
            connection.is_refused = True
            connection.is_clean = response.code != CLOSING
            return response
    if client.protocol is None:
        raise SMTPServerDisconnected("Connection lost")
    client.protocol.write(body.replace(b"\r\n.", b"\r\n..") + b".\r\n")
    progress.is_sent = True
    response = await client.protocol.read_response()
    connection.is_refused = False
    connection.is_clean = response.code != CLOSING
    return response


def _prepare(client: aiosmtplib.SMTP, draft: Draft) -> tuple[bytes, tuple[_Command, ...]]:
    body = build(draft)
    options = [b"SIZE=%d" % len(body)] if client.supports_extension("size") else []
    mailboxes = (draft.sender, draft.recipient, draft.reply_to)
    if not all(each.is_ascii for each in mailboxes if each):
        if not client.supports_extension("smtputf8"):
            raise NotSent("no_smtputf8", "The server takes only addresses in ASCII.")
        options += [b"BODY=8BITMIME", b"SMTPUTF8"]
    return body, (
        ("MAIL", TAKEN, (b"MAIL", f"FROM:<{draft.sender.address}>".encode(), *options)),
        ("RCPT", TAKEN, (b"RCPT", f"TO:<{draft.recipient.address}>".encode())),
        ("DATA", _READY, (b"DATA",)),
    )
