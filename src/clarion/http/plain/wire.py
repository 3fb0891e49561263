"""What is written on a connection: the head of a response, and the parts of its body."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http import HTTPStatus

Header = tuple[bytes, bytes]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
# Of these responses, nothing follows the head, and no length is stated.
WITHOUT_BODY = frozenset({204, 304})
_STATUS_LINES = {
    each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus
}


class HeadWriter:
    """Writes heads of responses; the line with the date once a second."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._second = -1
        self._date = b""

    def write(self, status: int, headers: Sequence[Header], more: Sequence[bytes] = ()) -> bytes:
        """Return a head; `more` are whole lines. `ValueError` if a header has a line end in it."""
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        lines += [b"%b: %b\r\n" % each for each in headers]
        lines += more
        lines += (self._write_date(), b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise ValueError("a header of a response has a line end in it")
        return head

    def _write_date(self) -> bytes:
        second = self._now() // 1000
        if second != self._second:
            self._second = second
            text = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(second))
            self._date = f"date: {text}\r\n".encode()
        return self._date


def write_chunk(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)
