"""An email as bytes: whatever the values are, each header stays one header."""

import email
import email.policy
from datetime import UTC, datetime
from email.header import decode_header, make_header
from email.message import Message
from email.utils import getaddresses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.channels.mail import SUBJECT_LENGTH, Draft, Mailbox, build, make_mailbox
from clarion.channels.plain_text import to_plain_text
from tests.stopwatch import count_units

NAMES = st.text(st.sampled_from("ab ,;<>@\"\\()[]:.=?_äé漢🚀\u00a0\u200b'"), max_size=200)
HEADERS = {
    "from", "to", "subject", "date", "message-id", "mime-version", "auto-submitted",
    "x-clarion-notification-id", "content-language", "list-unsubscribe", "list-unsubscribe-post",
    "content-type", "content-transfer-encoding",
}  # fmt: skip


def make_draft(**changes: Any) -> Draft:
    values: dict[str, Any] = {
        "id": "0190/email",
        "sender": Mailbox("Läden", "noreply@example.com"),
        "recipient": Mailbox("Ana", "ana@example.com"),
        "reply_to": None,
        "subject": "Order 7",
        "text": "Hello",
        "html": None,
        "language": "de",
        "notification_id": "0190",
        "unsubscribe_url": "https://notify.example.com/unsubscribe/" + "a" * 400,
        "sent_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Draft(**values | changes)


def read(draft: Draft) -> Message:
    """Return the email as an old parser reads it, after checking its lines."""
    written = build(draft)
    assert b"\n" not in written.replace(b"\r\n", b"")
    assert b"\r" not in written.replace(b"\r\n", b"")
    assert all(len(line) <= 998 for line in written.split(b"\r\n"))
    assert written.endswith(b"\r\n")
    read = email.message_from_bytes(written)
    assert {name.lower() for name in read.keys()} <= HEADERS  # noqa: SIM118 - not a dictionary
    return read


def decode(text: object) -> str:
    return str(make_header(decode_header(str(text))))


@given(NAMES)
def test_a_name_is_shown_as_it_is_and_adds_no_address(name: str) -> None:
    ((shown, address),) = getaddresses([read(make_draft(recipient=Mailbox(name, "a@b.c")))["To"]])
    assert (decode(shown), address) == (" ".join(name.split()), "a@b.c")


@given(st.text(max_size=400))
def test_a_subject_of_any_text_is_one_header(subject: str) -> None:
    shown = decode(read(make_draft(subject=subject))["Subject"])
    assert shown.isprintable() or not any(each in shown for each in "\r\n\0\x85\u2028")
    assert len(shown) <= SUBJECT_LENGTH


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_and_html_arrive(text: str, html: str) -> None:
    shown = read(make_draft(text=text)).get_payload(decode=True)
    assert isinstance(shown, bytes)
    assert _lines(shown.decode()) == _lines(text)
    parts = read(make_draft(html=f"<p>{html}")).get_payload()
    assert isinstance(parts, list)
    shown = parts[1].get_payload(decode=True)  # type: ignore[union-attr]
    assert isinstance(shown, bytes)
    assert _lines(shown.decode()) == _lines(f"<p>{html}")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")


def test_the_link_to_unsubscribe_is_on_one_line() -> None:
    url = "https://notify.example.com/unsubscribe/" + "a" * 400
    assert f"\r\nList-Unsubscribe: <{url}>\r\n".encode() in build(make_draft())


@pytest.mark.parametrize("character", "\r\n\0\t\x0b\x1b\x7f\x85\u2028\u2029")
def test_no_mailbox_has_control_characters(character: str) -> None:
    for name, address in (
        (f"A{character}B", "a@b.c"),
        ("A", f"a{character}@b.c"),
        ("A", f"a@b{character}.c"),
    ):
        with pytest.raises(ValueError, match="must be an email address"):
            make_mailbox(name, address)


@pytest.mark.parametrize("character", "＞＜，；：＠（）［］＼＂＿％\u3000")
def test_a_domain_is_that_of_a_host_when_it_is_mapped_to_ascii(character: str) -> None:
    """IDNA maps wide forms to the characters that end an address in SMTP and in headers."""
    for domain in (f"a{character}b.example", f"ü{character}.example", f"a.example{character}"):
        with pytest.raises(ValueError, match=r"."):
            make_mailbox("Ana", f"ana@{domain}")
    assert make_mailbox("", "ana@bücher.example").address == "ana@xn--bcher-kva.example"
    assert make_mailbox("", "ana@ｅxample。com").address == "ana@example.com"


def test_html_becomes_text() -> None:
    html = """<html><head><title>x</title><style>p{}</style></head><body><h1>Hi &amp; bye</h1>
    <!--[if mso]><table><![endif]--><p>See <a href="https://x.y/?a=1&amp;b=2">this</a>,
    <a href="javascript:x">that</a> and <a href='https://x.y'>https://x.y</a>.</p>
    <ul><li>a<li>b</ul><table><tr><td>1</td><td>2</td></tr></table></body></html>"""
    assert [line for line in to_plain_text(html).splitlines() if line] == [
        "Hi & bye",
        "See this (https://x.y/?a=1&b=2), that and https://x.y.",
        "- a",
        "- b",
        "1 2",
    ]


@pytest.mark.timing
@pytest.mark.parametrize(
    "part",
    ["<!--", "<", "<a ", "</", '<a href="', "&#99999999", "<a href='https://x'>", "&", "<style>",
     "<![CDATA[", " <p>\n", "&#x", "<!-- --", "\n \n", "<a href=", "<p", "<li>"],
)  # fmt: skip
def test_the_time_for_text_grows_with_the_size_alone(part: str) -> None:
    """Eight times the size takes about eight times as long; quadratic would be 64 times."""

    def take(size: int) -> float:
        html = part * (size // len(part))
        return count_units(lambda: to_plain_text(html))

    assert take(262_144) < 30 * take(32_768) + 10
