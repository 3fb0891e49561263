"""Segments of text messages, compared with an independent rule: cut the encoded text, and count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.catalog.model.sms_segments import SmsEncoding, SmsSegments, count_segments

# The alphabet as the standard prints it: a table of eight columns, read by code point.
BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅå"
    "Δ_ΦΓΛΩΠΨΣΘΞ\x1bÆæßÉ"
    " !\"#¤%&'()*+,-./"
    "0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNO"
    "PQRSTUVWXYZÄÖÑÜ§"
    "¿abcdefghijklmno"
    "pqrstuvwxyzäöñüà"
)
ESCAPE = 0x1B
EXTENSION = {
    0x0A: "\f",
    0x14: "^",
    0x28: "{",
    0x29: "}",
    0x2F: "\\",
    0x3C: "[",
    0x3D: "~",
    0x3E: "]",
    0x40: "|",
    0x65: "€",
}
SEPTETS = {character: bytes([code]) for code, character in enumerate(BASIC) if code != ESCAPE} | {
    character: bytes([ESCAPE, code]) for code, character in EXTENSION.items()
}
GSM = st.text(alphabet=sorted(SEPTETS), max_size=700)
ANY = st.text(max_size=300)


def cut(text: str) -> tuple[str, int, list[str]]:
    """Encode a text, cut it into segments, and decode each: nothing of a character may be left."""
    if set(text) <= set(SEPTETS):
        octets = b"".join(SEPTETS[character] for character in text)
        name, width, single, each = "GSM-7", 1, 160, 153
    else:
        octets = text.encode("utf-16-be")
        name, width, single, each = "UCS-2", 2, 70, 67
    units = len(octets) // width
    size = (single if units <= single else each) * width
    parts = []
    while octets:
        part = octets[:size]
        if len(octets) > size and is_open(part, name):
            part = part[:-width]
        parts.append(decode(part, name))
        octets = octets[len(part) :]
    return name, units, parts


def is_open(part: bytes, name: str) -> bool:
    """Whether a part ends with the first half of a character."""
    return part[-1] == ESCAPE if name == "GSM-7" else 0xD8 <= part[-2] <= 0xDB


def decode(part: bytes, name: str) -> str:
    if name == "UCS-2":
        return part.decode("utf-16-be")
    codes = iter(part)
    return "".join(EXTENSION[next(codes)] if c == ESCAPE else BASIC[c] for c in codes)


@given(st.one_of(GSM, ANY, st.text(alphabet="a€😀", max_size=500)))
def test_segments_are_those_of_the_text_when_it_is_cut(text: str) -> None:
    name, units, parts = cut(text)
    assert "".join(parts) == text
    assert count_segments(text) == SmsSegments(SmsEncoding(name), units, len(parts))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", SmsSegments(SmsEncoding.GSM_7, 0, 0)),
        ("a" * 160, SmsSegments(SmsEncoding.GSM_7, 160, 1)),
        ("a" * 161, SmsSegments(SmsEncoding.GSM_7, 161, 2)),
        ("a" * 306, SmsSegments(SmsEncoding.GSM_7, 306, 2)),
        ("€" * 80, SmsSegments(SmsEncoding.GSM_7, 160, 1)),
        # The escape and its character stay together: 152 septets of 153 are used.
        ("€" * 153, SmsSegments(SmsEncoding.GSM_7, 306, 3)),
        ("ç", SmsSegments(SmsEncoding.UCS_2, 1, 1)),
        ("я" * 70, SmsSegments(SmsEncoding.UCS_2, 70, 1)),
        ("я" * 71, SmsSegments(SmsEncoding.UCS_2, 71, 2)),
        ("😀" * 35, SmsSegments(SmsEncoding.UCS_2, 70, 1)),
        # As above: 66 units of 67 are used.
        ("😀" * 67, SmsSegments(SmsEncoding.UCS_2, 134, 3)),
        ("\ud800", SmsSegments(SmsEncoding.UCS_2, 1, 1)),
    ],
)
def test_known_cases(text: str, expected: SmsSegments) -> None:
    assert count_segments(text) == expected


def test_they_read_well() -> None:
    assert str(count_segments("Hello")) == "1 segment, GSM-7"
    assert str(count_segments("Привет " * 15)) == "2 segments, UCS-2"
