"""Email over SMTP: encrypted, with the certificate checked, over connections that are reused."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import aiosmtplib
import msgspec
from aiosmtplib import SMTPResponse
from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPException,
    SMTPResponseException,
)

from clarion.catalog.model import MANDATORY_CATEGORIES, Channel
from clarion.channels.answers import NETWORK, NO_ANSWER, NOT_CONNECTED, Action, Answer, AnswerTable
from clarion.channels.authorities import (
    UnreadableAuthority,
    find_ca_faults,
    make_client_context,
)
from clarion.channels.connection_words import describe_lookup
from clarion.channels.kinds import ProviderKind
from clarion.channels.mail import Draft, make_mailbox, read_mailbox
from clarion.channels.model import Configuration, Outcome, OutgoingMessage, Verified
from clarion.channels.port import SenderContext
from clarion.channels.smtp_connections import SmtpConnections
from clarion.channels.smtp_dialogue import (
    TAKEN,
    NotSent,
    SmtpProgress,
    greet,
    transfer,
    transfer_unless_stale,
)
from clarion.channels.targets import TargetRefused
from clarion.clock import to_datetime
from clarion.errors import FieldFault
from clarion.system.connection_faults import describe_fault

_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Of the caller's time limit: the outcome should be ours, which knows whether the message was sent.
_PART_OF_TIMEOUT = 0.9
_TEXT_LENGTH = 300
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_ENHANCED = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})\b")
_USERNAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,320}")
_HOST = re.compile(r"[^\s/@\x00-\x20\x7f-\x9f]{1,253}")
_FIRST_FAILURE, _PERMANENT = 400, 500
_NOT_AUTHENTICATED = frozenset({530, 534, 535, 538})
_REFUSALS = {"connect": "server_refused", "auth": "auth_refused", "MAIL": "sender_refused"}
_IPV6 = 6
_PORT_END = 65_536
_PRIVATE = (
    "`host` leads to a private or reserved address. The operator can allow networks with "
    "--allow-private-targets."
)
_PLAIN = "With `security` none, `host` must be in a private network that the operator allows."
_NO_MAILBOX = "must be an email address, like ana@example.com or Ana <ana@example.com>"

ANSWERS = AnswerTable(
    Answer("250", Action.DELIVERED, "The server accepted the message."),
    Answer("421", Action.RETRY, "The server closes the connection."),
    Answer("450", Action.RETRY, "The mailbox is not available now, or greylisting."),
    Answer("451", Action.RETRY, "The server has a fault."),
    Answer("452", Action.RETRY, "The server has no room."),
    Answer("4xx", Action.RETRY, "Any other temporary failure."),
    Answer("5.1.1", Action.GONE, "There is no such mailbox."),
    Answer("5.1.2", Action.GONE, "There is no such domain."),
    Answer("5.1.3", Action.GONE, "The address is not valid."),
    Answer("5.1.6", Action.GONE, "The mailbox has moved."),
    Answer("5.1.10", Action.GONE, "The domain takes no email."),
    Answer("551", Action.GONE, "The mailbox is elsewhere."),
    Answer("5.7.x", Action.REJECT, "Refused by a policy of the server."),
    Answer("530", Action.DISABLE, "A username is needed."),
    Answer("534", Action.DISABLE, "The server wants another kind of authentication."),
    Answer("535", Action.DISABLE, "The username or the password is wrong."),
    Answer("538", Action.DISABLE, "Authentication needs encryption."),
    Answer("auth_refused", Action.DISABLE, "Any other permanent refusal of the credentials."),
    Answer("no_auth", Action.DISABLE, "The server offers no authentication that Clarion knows."),
    Answer("bad_settings", Action.DISABLE, "`host` or `ca_path` cannot be used; see the message."),
    Answer("no_starttls", Action.RETRY, "The server offers no STARTTLS; nothing was sent."),
    Answer("server_refused", Action.RETRY, "The server refuses connections permanently."),
    Answer("sender_refused", Action.RETRY, "The server refuses the address of `from`."),
    Answer("no_smtputf8", Action.REJECT, "The address needs SMTPUTF8; the server has none."),
    Answer("bad_address", Action.REJECT, "The user's address cannot be written in an email."),
    Answer("5xx", Action.REJECT, "Any other permanent refusal of the message."),
    *NETWORK,
    default=Action.RETRY,
)


class SmtpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The server, and the mailbox that emails come from."""

    host: str
    sender: str = msgspec.field(name="from")
    port: int | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    reply_to: str | None = None
    ca_path: str | None = None


class SmtpSecrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password, if the server needs one."""

    password: str | None = None


class SmtpSender:
    """The `Sender` port."""

    def __init__(
        self, configuration: Configuration[SmtpSettings, SmtpSecrets], context: SenderContext
    ) -> None:
        self._settings = configuration.settings
        self._password = configuration.secrets.password or ""
        self._limit_s = configuration.timeout_s * _PART_OF_TIMEOUT
        self._context = context
        self._sender = read_mailbox(self._settings.sender)
        reply_to = self._settings.reply_to
        self._reply_to = None if reply_to is None else read_mailbox(reply_to)
        self._connections = SmtpConnections(self._open, configuration.concurrency)
        self._own_name = _name_self(context.public_url)
        self._tls: ssl.SSLContext | None = None

    async def send(self, message: OutgoingMessage) -> Outcome:
        progress = SmtpProgress()
        try:
            async with asyncio.timeout(self._limit_s):
                return _judge(progress, await self._send(message, progress))
        except (NotSent, SMTPException, OSError, TimeoutError) as error:
            return _judge_error(progress, error, self._settings.host)

    async def verify(self) -> Verified | Outcome:
        """Connect, encrypt and sign in."""
        try:
            async with asyncio.timeout(self._limit_s):
                async with self._connections.lend(is_new=True):
                    pass
        except (NotSent, SMTPException, OSError, TimeoutError) as error:
            return _judge_error(SmtpProgress(), error, self._settings.host)
        return Verified(response="signed in" if self._settings.username else "connected")

    async def close(self) -> None:
        self._connections.close()

    async def _send(self, message: OutgoingMessage, progress: SmtpProgress) -> SMTPResponse:
        draft = self._draft(message)
        async with self._connections.lend() as connection:
            response = await transfer_unless_stale(connection, draft, progress)
        if response is None:
            async with self._connections.lend(is_new=True) as connection:
                response = await transfer(connection, draft, progress)
        return response

    def _draft(self, message: OutgoingMessage) -> Draft:
        notification, user = message.notification, message.user
        try:
            recipient = make_mailbox(user.name or "", message.address.value)
        except ValueError as error:
            raise NotSent("bad_address", "The user's address cannot be used in email.") from error
        is_optional = message.user_can_disable and (
            notification.category not in MANDATORY_CATEGORIES
        )
        make_url = self._context.unsubscribe_url if is_optional else None
        return Draft(
            id=message.id,
            sender=self._sender,
            recipient=recipient,
            reply_to=self._reply_to,
            subject=message.subject or notification.title or "",
            text=None if message.is_html else message.body,
            html=message.body if message.is_html else None,
            language=message.language,
            notification_id=notification.id,
            unsubscribe_url=make_url
            and make_url(notification.app_id, user.id, notification.type, Channel.EMAIL),
            sent_at=to_datetime(self._context.clock.now()),
        )

    async def _open(self) -> aiosmtplib.SMTP:
        """Return a client that is connected, encrypted and authenticated."""
        settings = self._settings
        tls = await self._get_tls()
        client = aiosmtplib.SMTP(
            hostname=settings.host,
            sock=await self._connect(),
            local_hostname=self._own_name,
            timeout=self._limit_s,
            use_tls=settings.security == "tls",
            start_tls=False,
            tls_context=tls,
        )
        await greet(
            client,
            is_starttls=settings.security == "starttls",
            username=settings.username,
            password=self._password,
        )
        return client

    async def _connect(self) -> socket.socket:
        """Connect to the checked address: a second look-up could return another one."""
        host, port = self._settings.host, self._settings.port or _PORTS[self._settings.security]
        try:
            address = await self._context.http.targets.resolve_host(host)
        except TargetRefused as error:
            raise NotSent("bad_settings", _PRIVATE) from error
        except OSError as error:  # or a time-out
            raise NotSent(NOT_CONNECTED, _clean(describe_lookup(error, host))) from error
        is_public = ipaddress.ip_address(address).is_global
        if self._settings.security == "none" and is_public:
            raise NotSent("bad_settings", _PLAIN)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connected = socket.socket(family, socket.SOCK_STREAM)
        connected.setblocking(False)  # noqa: FBT003
        try:
            await asyncio.get_running_loop().sock_connect(connected, (address, port))
        except BaseException:
            connected.close()
            raise
        return connected

    async def _get_tls(self) -> ssl.SSLContext:
        if self._tls is None:
            try:
                self._tls = await asyncio.to_thread(make_client_context, self._settings.ca_path)
            except UnreadableAuthority as error:
                raise NotSent("bad_settings", str(error)) from error
        return self._tls


def _judge_error(progress: SmtpProgress, error: Exception, host: str) -> Outcome:
    if isinstance(error, NotSent):
        return ANSWERS.judge([error.code], str(error))
    if isinstance(error, SMTPAuthenticationError):
        progress.step = "auth"
        return _judge(progress, SMTPResponse(error.code, error.message))
    if isinstance(error, SMTPResponseException) and error.code > 0 and not progress.is_sent:
        return _judge(progress, SMTPResponse(error.code, error.message))
    code = NO_ANSWER if progress.is_sent else NOT_CONNECTED
    return ANSWERS.judge([code], _explain(error, host))


def _judge(progress: SmtpProgress, response: SMTPResponse) -> Outcome:
    text = _clean(f"{response.code} {response.message}")
    is_positive = response.code < _FIRST_FAILURE
    if is_positive and (not progress.is_sent or response.code not in TAKEN):
        # It is not the answer to what was sent.
        return ANSWERS.judge([NO_ANSWER if progress.is_sent else NOT_CONNECTED], text)
    return ANSWERS.judge(list(_codes(progress, response)), text, response=text)


def _codes(progress: SmtpProgress, response: SMTPResponse) -> Iterator[str]:
    """Yield the codes of an answer, the most specific first."""
    code = response.code
    if code < _PERMANENT:
        yield from ("250",) if code in TAKEN else (str(code), "4xx")
    elif code in _NOT_AUTHENTICATED:
        yield str(code)
    elif progress.step in _REFUSALS:
        # It says nothing of the recipient.
        yield _REFUSALS[progress.step]
    else:
        if found := _ENHANCED.match(response.message):
            yield found[0]
            yield f"{found[1]}.{found[2]}.x"
        yield from (str(code), "5xx")


def _clean(text: str) -> str:
    return _UNSAFE.sub(" ", text)[:_TEXT_LENGTH]


def _explain(error: BaseException, host: str) -> str:
    """Return what happened, as far as it names neither addresses nor files."""
    cause = error.__cause__ if isinstance(error, SMTPException) and error.__cause__ else error
    return _clean(describe_fault(cause, host))


def _name_self(public_url: str) -> str:
    """Return the name for EHLO."""
    host = urlsplit(public_url).hostname or "localhost"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return f"[IPv6:{address}]" if address.version == _IPV6 else f"[{address}]"


def find_faults(settings: SmtpSettings, secrets: SmtpSecrets) -> Iterator[FieldFault]:
    """Yield what is wrong with the settings. It reads the file of `ca_path`."""
    yield from _mailbox_faults(settings)
    if not _HOST.fullmatch(settings.host):
        yield FieldFault("settings.host", "must be the name or the address of a mail server")
    if settings.port is not None and not 0 < settings.port < _PORT_END:
        yield FieldFault("settings.port", "must be 1 to 65535")
    if settings.username is not None and not _USERNAME.fullmatch(settings.username):
        yield FieldFault("settings.username", "must have 1 to 320 characters, no control ones")
    if settings.security == "none" and settings.username is not None:
        yield FieldFault("settings.security", "must be starttls or tls: a password is sent")
    if (settings.username is None) != (secrets.password is None):
        yield FieldFault("secrets.password", "must be given together with `username`")
    yield from find_ca_faults(settings.ca_path)


def _mailbox_faults(settings: SmtpSettings) -> Iterator[FieldFault]:
    for name, text in (("from", settings.sender), ("reply_to", settings.reply_to)):
        try:
            if text is not None:
                read_mailbox(text)
        except ValueError:
            yield FieldFault(f"settings.{name}", _NO_MAILBOX)


SMTP = ProviderKind(
    name="smtp",
    bound_to=frozenset({"host", "port", "security", "username", "ca_path"}),
    channels=frozenset({Channel.EMAIL}),
    open=SmtpSender,
    answers=ANSWERS,
    settings=SmtpSettings,
    secrets=SmtpSecrets,
    find_faults=find_faults,
    verify=SmtpSender.verify,
)
