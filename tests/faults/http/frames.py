"""HTTP/2 frames by hand: also those that no client would send."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW = 4
CANCEL = struct.pack(">I", 8)
LIMIT_S = 60


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def head(path: str, *, method: str = "GET", **more: str) -> bytes:
    """Encode a head without the dynamic table, so that it can be sent again and again."""
    fields = {":method": method, ":path": path, ":scheme": "http", ":authority": "localhost"}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(list(fields.items())))


@contextmanager
def connected(port: int, *, window: int | None = None) -> Iterator[socket.socket]:
    """Open an HTTP/2 connection; with a window of 0 the server can send no body."""
    settings = b"" if window is None else struct.pack(">HI", INITIAL_WINDOW, window)
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        yield connection


def answer_pings(connection: socket.socket, for_s: float) -> bool:
    """Read frames and answer PINGs for so long; return whether the server closed meanwhile."""
    connection.settimeout(for_s)
    rest = b""
    try:
        while part := connection.recv(65_536):
            rest += part
            while len(rest) >= 9 and len(rest) >= 9 + int.from_bytes(rest[:3]):
                size = int.from_bytes(rest[:3])
                kind, flags, payload = rest[3], rest[4], rest[9 : 9 + size]
                rest = rest[9 + size :]
                if kind == PING and not flags & ACK:
                    connection.sendall(frame(PING, ACK, 0, payload))
    except TimeoutError:
        return False
    except OSError:
        return True
    return True
