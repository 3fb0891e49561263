"""An email as bytes: its headers, and its parts as text and HTML.

Every line of a header is made here from values without control characters, so that none of them
can end it. `email.message` takes 6 ms for such a message, and writes the long URL of
`List-Unsubscribe` as encoded words, which no mail program reads.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NamedTuple

from clarion.channels.plain_text import to_plain_text

# What fits into a line of 78 with the name of the header.
_LINE_LENGTH = 60
# Bytes of an encoded word, which may have 75 characters.
_WORD_BYTES = 42
SUBJECT_LENGTH = 300
# Control characters, and all that Python or a mail program may take for the end of a line.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/?^_`{|}~ -]+")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9-]+")
_ADDRESS = re.compile(
    r"(?P<local>[^\s@<>()\[\]\\,;:\"]{1,64})@(?P<domain>[^\s@<>()\[\]\\,;:\"]{1,253})"
)
# Letters, digits, `-` and dots.
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.?", re.ASCII)
_MAILBOX = re.compile(r"(?P<name>[^<>]{0,200})<(?P<address>[^<>]{3,320})>")
_LINE_BREAK = re.compile(r"\r\n?")


class Mailbox(NamedTuple):
    """An address, its domain in ASCII, and the name that is shown for it."""

    name: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    @property
    def is_ascii(self) -> bool:
        """Whether every server takes it; otherwise it must know SMTPUTF8."""
        return self.address.isascii()


class Draft(NamedTuple):
    """What an email is made from. `html` or `text` may be missing, not both."""

    id: str
    sender: Mailbox
    recipient: Mailbox
    reply_to: Mailbox | None
    subject: str
    text: str | None
    html: str | None
    language: str | None
    notification_id: str
    unsubscribe_url: str | None
    sent_at: datetime


def read_mailbox(text: str) -> Mailbox:
    """Return the mailbox of `a@b.c` or `Name <a@b.c>`; `ValueError` if it is neither."""
    found = _MAILBOX.fullmatch(text.strip(" "))
    name, address = (found["name"].strip(" "), found["address"]) if found else ("", text.strip(" "))
    if name[:1] == name[-1:] == '"' and len(name) > 1:
        name = name[1:-1].replace('\\"', '"')
    return make_mailbox(name, address)


def make_mailbox(name: str, address: str) -> Mailbox:
    """Return a mailbox; `ValueError` if it has control characters, or no valid address."""
    found = _ADDRESS.fullmatch(address)
    if not found or _UNSAFE.search(address) or _UNSAFE.search(name):
        raise ValueError("must be an email address, like ana@example.com or Ana <ana@example.com>")
    domain = found["domain"]
    if not domain.isascii():
        domain = domain.encode("idna").decode()  # `UnicodeError` is a `ValueError`
        # Wide forms of `>`, `,` and `@` become these.
        if not _HOST.fullmatch(domain):
            raise ValueError("must be an email address with the domain of a host")
    return Mailbox(name, f"{found['local']}@{domain}")


def make_message_id(message_id: str, domain: str) -> str:
    """Return the `Message-ID`: the same for every attempt."""
    return f"<{_NOT_IN_ID.sub('.', message_id)}@{domain}>"


def build(draft: Draft) -> bytes:
    """Return the email with CRLF line ends. It is ASCII, but for an address that is not."""
    lines = [f"{name}: {value}" for name, value in _headers(draft)]
    text = draft.text if draft.html is None else to_plain_text(draft.html)
    plain = _part("plain", text or "")
    if draft.html is None:
        return "\r\n".join([*lines, ""]).encode() + plain + b"\r\n"
    html = _part("html", draft.html)
    # No quoted-printable text has `=_` in it.
    boundary = f"=_{_NOT_IN_ID.sub('', draft.id)[-40:]}"
    head = [*lines, f'Content-Type: multipart/alternative; boundary="{boundary}"', "", ""]
    mark = f"--{boundary}".encode()
    return "\r\n".join(head).encode() + b"\r\n".join((mark, plain, mark, html, mark + b"--", b""))


def _headers(draft: Draft) -> Iterator[tuple[str, str]]:
    yield "From", _write_mailbox(draft.sender)
    yield "To", _write_mailbox(draft.recipient)
    if draft.reply_to:
        yield "Reply-To", _write_mailbox(draft.reply_to)
    yield "Subject", _write_text(_clean(draft.subject)[:SUBJECT_LENGTH])
    yield "Date", format_datetime(draft.sent_at.astimezone(UTC))
    yield "Message-ID", make_message_id(draft.id, draft.sender.domain)
    yield "MIME-Version", "1.0"
    yield "Auto-Submitted", "auto-generated"
    yield "X-Clarion-Notification-Id", _clean(draft.notification_id)
    if draft.language:
        yield "Content-Language", _clean(draft.language)
    if draft.unsubscribe_url:
        yield "List-Unsubscribe", f"<{draft.unsubscribe_url}>"
        yield "List-Unsubscribe-Post", "List-Unsubscribe=One-Click"


def _clean(text: str) -> str:
    """Return text on one line, without control characters."""
    return " ".join(_UNSAFE.sub(" ", text).split())


def _write_mailbox(mailbox: Mailbox) -> str:
    name = _clean(mailbox.name)
    if not name:
        return mailbox.address
    if not name.isascii() or len(name) > _LINE_LENGTH:
        phrase = _encode(name)
    elif _ATOMS.fullmatch(name):
        phrase = name
    else:
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        phrase = f'"{escaped}"'
    return f"{phrase}\r\n <{mailbox.address}>"


def _write_text(text: str) -> str:
    is_plain = text.isascii() and len(text) <= _LINE_LENGTH and "=?" not in text
    return text if is_plain else _encode(text)


def _encode(text: str) -> str:
    """Return text as encoded words (RFC 2047), one in a line; no character is cut in two."""
    words, word = [], b""
    for character in text:
        more = character.encode()
        if len(word) + len(more) > _WORD_BYTES:
            words.append(word)
            word = b""
        word += more
    words.append(word)
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(each).decode()}?=" for each in words)


def _part(subtype: str, text: str) -> bytes:
    """Return a part with its headers, as quoted-printable: lines of at most 76 characters."""
    head = (
        f'Content-Type: text/{subtype}; charset="utf-8"\r\n'
        "Content-Transfer-Encoding: quoted-printable\r\n\r\n"
    )
    lines = _LINE_BREAK.sub("\n", text)
    encoded = binascii.b2a_qp(lines.encode(errors="replace"), istext=True)
    return head.encode() + encoded.replace(b"\n", b"\r\n")
