"""T31: whatever is parsed is read or refused: with an error of ours, soon, and in little memory.

Inputs are made of pieces of valid ones, of what means something to a parser, and of any bytes; some
pieces come thousands of times. Times are processor time in units of this machine.
"""

import asyncio
import re
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import jwt
import msgspec
import pytest
from aiosmtplib.errors import SMTPException
from aiosmtplib.protocol import SMTPProtocol
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clarion.access.keys import parse_api_secret
from clarion.access.origins import check_origins
from clarion.access.user_tokens import _peek
from clarion.catalog.rendering.templates import check_template
from clarion.channels.mail import Draft, Mailbox, build, read_mailbox
from clarion.channels.targets import check_url
from clarion.channels.web_push_encryption import read_subscription
from clarion.clock import to_rfc3339
from clarion.errors import ClarionError
from clarion.events.drafts import EventDraft, find_faults
from clarion.http.decoding import decode
from clarion.http.encoded_words import read_text
from clarion.inbox import frames as inbox_frames
from clarion.pages import parse_number, read_cursor
from clarion.people.segments.parser import parse as parse_filter
from clarion.people.segments.tokens import FilterError
from clarion.push import frames as device_frames
from clarion.push.model.vapid import read_private_key, read_public_key
from clarion.push.webpush.request import read_endpoint_id
from clarion.push.webpush.signatures import VapidSignatures
from tests.factories import NOW
from tests.faults.sizes import COLUMN, SIZES
from tests.stopwatch import count_units, unit_s

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

# A second on the machine that the unit was measured on.
UNITS_LIMIT = 1_000
MEMORY_LIMIT_KIB = 512 << 10
INPUT_LIMIT = 64 << 10
OF_ANY = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\r\n", b"\\u0000", b"%00", "＠".encode(), b" ")
TOKEN = jwt.encode({"aud": "app", "sub": "ana", "exp": 1}, "a secret of at least 32 characters")
KEY = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
SUBSCRIPTION = (
    f'{{"endpoint": "https://a.example/", "keys": {{"p256dh": "{KEY}", '
    '"auth": "BTBZMqHH6r4Tts7J_aSIgg"}}'
).encode()
EVENT = (
    b'{"type": "A", "recipient": {"user_id": "u"}, "actor": {"id": "a", "name": "n"}, '
    b'"scheduled_at": "2026-01-31T12:00:00Z", "data": {"a": [1, 1.5, null, true]}, '
    b'"deeplink": "app://x", "image_url": "https://a.example/b.png", "channels": ["push"]}'
)
_event_decoder = msgspec.json.Decoder(EventDraft)


def read_event(data: bytes) -> None:
    list(find_faults(decode(_event_decoder, data), NOW))


def read_frame(data: bytes) -> None:
    with suppress(ClarionError):
        decode(inbox_frames.decoder, data)
    decode(device_frames.decoder, data)


def read_token(data: bytes) -> None:
    text = data.decode("latin-1")
    parse_api_secret(text)
    _peek(text)


def read_page(data: bytes) -> None:
    text = data.decode("latin-1")
    number, _ = read_cursor(text)
    to_rfc3339(number)
    parse_number(text)


def read_vapid(data: bytes) -> None:
    text = data.decode("latin-1")
    for read in (read_public_key, read_private_key):
        with suppress(ValueError):
            read(text)
    VapidSignatures("https://a.example").identify(f"vapid t={text}, k={KEY}", "", NOW)
    VapidSignatures("https://a.example").identify(text, text, NOW)


def read_web_push(data: bytes) -> None:
    read_endpoint_id(data)
    read_subscription(data.decode("utf-8", "replace"))


def read_template(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    check_template(text[:200], text, ("order", "items"))


def write_email(data: bytes) -> None:
    """Write it, and find no line in its head that it does not begin itself."""
    text = data.decode("utf-8", "replace")
    read_text(data)
    own = Mailbox("Ana", "ana@example.com")
    sender = own
    with suppress(ValueError):
        sender = read_mailbox(text)
    written = build(
        Draft(
            "1",
            sender,
            own,
            None,
            text,
            text,
            text,
            "de",
            "1",
            None,
            datetime(2026, 1, 1, tzinfo=UTC),
        )
    )
    head = written.partition(b"\r\n\r\n")[0]
    assert all(re.match(rb"[A-Z][A-Za-z-]+: |[ \t]", line) for line in head.split(b"\r\n"))


def read_smtp_reply(data: bytes) -> None:
    loop = asyncio.new_event_loop()
    try:
        protocol = SMTPProtocol(loop=loop)
        protocol.connection_made(asyncio.Transport())
        waiter: Any = protocol._response_waiter
        for start in range(0, len(data), 1_000):
            protocol.data_received(data[start : start + 1_000])
        if waiter.done() and (error := waiter.exception()) is not None:
            raise error
    finally:
        loop.close()


def as_text(parse: Callable[[str], object], data: bytes) -> None:
    parse(data.decode("utf-8", "replace"))


# What is given to each: valid inputs, of which pieces are made, and words that mean something.
PARSERS: dict[str, tuple[Callable[[bytes], None], tuple[bytes, ...], bytes]] = {
    "event": (read_event, (EVENT,), rb'[ ] { } " \ 1e999 -0 9999 \ud800 , : null'),
    "frame": (
        read_frame,
        (b'{"type": "hello", "token": "x", "after": 1}', b'{"type": "read", "id": "n"}'),
        b'[ ] { } " 1e400 -1 99999999999999999999',
    ),
    "template": (
        read_template,
        (
            b"{% for i in items %}{{ i | upcase }}{% endfor %}",
            b"{% if order == 1 %}a{% elsif order %}b{% else %}c{% endif %}",
            b"{{ order.a[0] | date: '%Y' }}",
        ),
        b"{{ {% %} }} | -%} {%- raw endraw comment ( ) [ ] .. 9 assign",
    ),
    "email": (write_email, (b'"Ana" <ana@b\xc3\xbccher.example>', b"=?utf-8?q?a?="), b"< > @ , =?"),
    "smtp": (read_smtp_reply, (b"250-a\r\n250 b\r\n", b"550 5.1.1 no\r\n"), b"- 250 999 \n \r"),
    "web_push": (read_web_push, (SUBSCRIPTION,), b'{ } [ ] " = + / https:// [::1] @ #'),
    "vapid": (
        read_vapid,
        (KEY.encode(), f"vapid t={TOKEN}, k={KEY}".encode(), f"WebPush {TOKEN}".encode()),
        b'= , ; " . t= k= p256ecdsa=',
    ),
    "url": (
        partial(as_text, check_url),
        (
            b"https://hooks.example.com:443/a?b=c#d",
            b"http://[::ffff:127.0.0.1]/",
            b"http://0x7f.1/",
        ),
        b"@ : / // \\ # ? [ ] %2e 127.0.0.1 localhost xn-- ..",
    ),
    "origin": (
        partial(as_text, lambda text: check_origins([text])),
        (b"https://app.example.com:8443",),
        b"* : // [ ] @",
    ),
    "cursor": (read_page, (b"1767225600000-01a1f005", b"7-a"), b"- 9 0 + _ e"),
    "token": (read_token, (TOKEN.encode(), b"ck_" + b"a" * 16 + b"_" + b"b" * 43), b". = - _ e30"),
    "filter": (
        partial(as_text, parse_filter),
        (b"language = 'de' and (tag = 'vip' or not attributes.age > 18)",),
        b"( ) ' = <> in and or not 1e999",
    ),
}


# What these refuse an input with, beside the errors of requests.
REFUSALS: dict[str, type[Exception]] = {
    "email": ValueError,
    "filter": FilterError,
    "origin": ValueError,
    "smtp": SMTPException,
    "url": ValueError,
    "web_push": ValueError,
}
Parse = Callable[[bytes], None]


def make_inputs(seeds: tuple[bytes, ...], words: bytes) -> st.SearchStrategy[bytes]:
    pieces = [piece for seed in seeds for piece in re.split(rb"\b", seed) if piece]
    known = st.sampled_from([*seeds, *pieces, *words.split(b" "), *OF_ANY])
    part = st.one_of(known, known, known, st.binary(max_size=30))
    repeated = st.tuples(part, st.sampled_from([1, 1, 1, 1, 1, 2, 100, 5_000]))
    return st.lists(repeated, max_size=25).map(
        lambda parts: b"".join(text * times for text, times in parts)[:INPUT_LIMIT]
    )


def find_parser(name: str) -> Parse:
    """Return what reads an input, or refuses it as it should."""
    parse, refusal = PARSERS[name][0], REFUSALS.get(name, ClarionError)

    def run(data: bytes) -> None:
        with suppress(ClarionError, refusal):
            parse(data)

    return run


def check(parse: Parse, data: bytes) -> None:
    began = time.thread_time()
    parse(data)
    if time.thread_time() - began > UNITS_LIMIT * unit_s():  # once may have been bad luck
        assert count_units(lambda: parse(data)) < UNITS_LIMIT, (len(data), data[:200])


def memory_kib() -> int:
    """Return the most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_or_refuses_whatever_it_gets(name: str) -> None:
    parse, (_, seeds, words), before = find_parser(name), PARSERS[name], memory_kib()

    # At night other inputs each time; otherwise the same ones.
    @settings(
        max_examples=SIZES.parser_inputs,
        derandomize=COLUMN < 2,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(data=make_inputs(seeds, words))
    def fuzz(data: bytes) -> None:
        check(parse, data)

    for seed in seeds:
        check(parse, seed)
    fuzz()
    assert memory_kib() - before < MEMORY_LIMIT_KIB


def nested() -> Iterator[bytes]:
    for opening in (b"[", b'{"a":', b"(", b"{{", b"{% if a %}", b"not ", b"<", b"250-\r\n", b"."):
        yield opening * (INPUT_LIMIT // len(opening))


@pytest.mark.parametrize("name", PARSERS)
def test_endless_nesting_is_refused(name: str) -> None:
    for data in nested():
        check(find_parser(name), data)


@pytest.mark.parametrize(
    "parse",
    [
        lambda data: {}[data],  # an error that is none of ours
        lambda _: [sum(n * n for n in range(20_000)) for _ in range(3 * UNITS_LIMIT // 2)],
    ],
)
def test_what_the_fuzzer_is_for_is_found(parse: Parse) -> None:
    with pytest.raises((KeyError, AssertionError)):
        check(parse, b"")
