"""The frames and header blocks of HTTP/2, as far as a load generator needs them."""

import struct
from functools import lru_cache

from bench.http2.terms import Request

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x01, 0x01, 0x04, 0x08, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 1, 2, 3, 4, 5
CANCEL = 8

# Length and type share the first word, so one unpack reads a whole frame header.
FRAME = struct.Struct(">IBI")
SETTING = struct.Struct(">HI")
WORD = struct.Struct(">I")

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384


class ProtocolError(Exception):
    """The peer sent what HTTP/2 does not allow here."""


def _length(size: int) -> bytes:
    """HPACK integer with a seven-bit prefix, the high bit clear: no Huffman code follows."""
    if size < 127:
        return bytes((size,))
    octets, rest = [127], size - 127
    while rest > 127:
        octets.append(rest & 127 | 128)
        rest >>= 7
    return bytes((*octets, rest))


def _text(text: str) -> bytes:
    raw = text.encode()
    return _length(len(raw)) + raw


@lru_cache(maxsize=1024)
def _fields(headers: tuple[tuple[str, str], ...]) -> bytes:
    # 0x00: a literal that the peer shall not index, so that every request can be encoded alone.
    return b"".join(b"\x00" + _text(name.lower()) + _text(value) for name, value in headers)


@lru_cache(maxsize=1024)
def _announced(size: int) -> bytes:
    # 0x0f 0x0d: a literal whose name is number 28 of the static table, content-length. A client
    # should send it with every body, and most do.
    return b"\x0f\x0d" + _text(str(size))


@lru_cache(maxsize=64)
def _opening(method: str, scheme: str, authority: str) -> bytes:
    verb = {"GET": b"\x82", "POST": b"\x83"}.get(method, b"\x02" + _text(method))
    return verb + (b"\x87" if scheme == "https" else b"\x86") + b"\x01" + _text(authority)


def encode_headers(request: Request, scheme: str, authority: str) -> tuple[bytes, bytes]:
    """Give what stands before the stream id, and what stands after it."""
    opening = _opening(request.method, scheme, authority)
    block = opening + b"\x04" + _text(request.path) + _fields(request.headers)
    if request.body:
        block += _announced(len(request.body))
    if len(block) > DEFAULT_FRAME:
        raise ValueError(f"headers of {len(block)} bytes do not fit into a frame")
    flags = END_HEADERS if request.body else END_HEADERS | END_STREAM
    return FRAME.pack(len(block) << 8 | HEADERS, flags, 0)[:5], block


def _huffman(digits: str) -> bytes:
    """A status is all digits: 0, 1 and 2 have codes of five bits, the others of six."""
    bits = "".join(f"{int(d):05b}" if d in "012" else f"{int(d) + 22:06b}" for d in digits)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


_INDEXED = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
_LITERAL = {b"\x03%d" % status: status for status in range(100, 1000)}
_LITERAL |= {
    bytes((0x80 | len(code),)) + code: status
    for status in range(100, 1000)
    for code in (_huffman(str(status)),)
}


def status_of(block: bytes) -> int:
    """The first field of a response is :status, so nothing after it has to be read."""
    at = 0
    try:
        while block[at] == 0x20:  # "My dynamic table has size 0 now", as our SETTINGS asked.
            at += 1
        return _INDEXED.get(block[at]) or _literal_status(block, at)
    except LookupError as error:
        raise ProtocolError("a response without a status") from error


def _literal_status(block: bytes, at: int) -> int:
    index = block[at] & (0x3F if block[at] & 0x40 else 0x0F)
    # Index 0 is a name spelt out; no name but :status may stand here, so it is not read.
    at += 1 if index else 2 + (block[at + 1] & 0x7F)
    return _LITERAL[block[at : at + 1 + (block[at] & 0x7F)]]
