"""How many segments a text message takes: what providers charge for, and limit.

A text of the GSM 03.38 alphabet is sent in septets, 160 of them in a single message or 153 in each
of several; the characters of its extension table take two. Any other text is sent in UCS-2: 70
units, or 67 in each of several; characters beyond the basic plane take two. A character is never
split between segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from clarion.errors import count

# Twilio accepts 1,600 characters, which it advises against; many carriers drop more than ten.
SEGMENTS_LIMIT = 10

_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENSION = frozenset("\f^{}\\[~]|€")
_GSM = _BASIC | _EXTENSION
_LAST_OF_BASIC_PLANE = 0xFFFF


class SmsEncoding(StrEnum):
    """How the characters of a text message are encoded."""

    GSM_7 = "GSM-7"
    UCS_2 = "UCS-2"


# Units of a message of one segment, and of each of several: those have a header.
CAPACITY = {SmsEncoding.GSM_7: (160, 153), SmsEncoding.UCS_2: (70, 67)}


@dataclass(frozen=True, slots=True)
class SmsSegments:
    """The size of a text; `units` are septets or UTF-16 code units. An empty one has no segment."""

    encoding: SmsEncoding
    units: int
    count: int

    def __str__(self) -> str:
        return f"{count(self.count, 'segment')}, {self.encoding}"


def count_segments(text: str) -> SmsSegments:
    """Return the encoding that a text needs, its units, and its segments."""
    if _GSM.issuperset(text):
        encoding = SmsEncoding.GSM_7
        sizes = [2 if character in _EXTENSION else 1 for character in text]
    else:
        encoding = SmsEncoding.UCS_2
        sizes = [2 if ord(character) > _LAST_OF_BASIC_PLANE else 1 for character in text]
    units = sum(sizes)
    single, each = CAPACITY[encoding]
    if units <= single:
        return SmsSegments(encoding, units, min(units, 1))
    return SmsSegments(encoding, units, _fill(sizes, each))


def _fill(sizes: Iterable[int], capacity: int) -> int:
    """Return how many segments are needed for characters of these sizes, in this order."""
    count, used = 1, 0
    for size in sizes:
        if used + size > capacity:
            count, used = count + 1, 0
        used += size
    return count
