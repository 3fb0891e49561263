"""One HTTP/2 connection: frames in, answers to the tally, the next requests out."""

import asyncio
import struct
from collections.abc import Callable
from time import perf_counter
from typing import cast

from bench.http2.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW,
    MAX_FRAME,
    MAX_STREAMS,
    PADDED,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    WORD,
    ProtocolError,
    status_of,
)
from bench.http2.session import UNLIMITED, Session

# What the peer may send unasked, a stream and a connection alike; refilled when half is used.
WINDOW = 4 * 1024 * 1024
# A status below this one announces another.
FINAL = 200


class Exchange:
    """A request under way, and what has come of its answer."""

    __slots__ = ("body", "index", "intended", "status", "used")

    def __init__(self, index: int, intended: float) -> None:
        self.index = index
        self.intended = intended
        self.status = 0
        self.used = 0
        self.body = bytearray()


class Upload:
    """The part of a request body that flow control holds back."""

    __slots__ = ("rest", "window")

    def __init__(self, body: bytes, window: int) -> None:
        self.rest = memoryview(body)
        self.window = window


class Connection(asyncio.Protocol):
    """One HTTP/2 connection: frames in, answers to the tally, the next requests out."""

    def __init__(self, session: Session) -> None:
        self.ready = asyncio.Event()
        self._session = session
        self._tally = session.tally
        self._schedule = session.schedule
        self._exchanges: dict[int, Exchange] = {}
        self._uploads: dict[int, Upload] = {}
        self._out: list[bytes | memoryview] = []
        self._rest = b""
        self._split = 0, b""
        self._next_stream = 1
        self._wanted = session.load.streams
        self._allowed = UNLIMITED
        self._window = self._stream_window = DEFAULT_WINDOW
        self._frame_limit = DEFAULT_FRAME
        self._used = 0
        self._closing = False
        self._transport: asyncio.Transport
        self._controls: dict[int, Callable[[int, int, bytes], None]] = {
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window_update,
            CONTINUATION: self._on_continuation,
        }

    @property
    def idle(self) -> bool:
        return not self._exchanges

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._session.live.append(self)
        # With no dynamic table a status can be read without the blocks that came before.
        settings = ((HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW, WINDOW))
        self._out.append(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._send(SETTINGS, 0, 0, b"".join(SETTING.pack(*setting) for setting in settings))
        self._send(WINDOW_UPDATE, 0, 0, WORD.pack(WINDOW - DEFAULT_WINDOW))
        self.fill(perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # Whatever it was, the requests have got no answer.
        self._give_up("lost")
        if self.ready.is_set() and not self._closing:
            self._tally.errors["disconnect"] += 1
        self._session.live.remove(self)
        self._session.settle()
        self.ready.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._rest = self._read(self._rest + data if self._rest else data, perf_counter())
        except ProtocolError:
            self._give_up("protocol fault")
            self._transport.abort()
            return
        self.fill(perf_counter())
        if not self._exchanges:
            self._rest_or_leave()

    def fill(self, now: float, most: int = UNLIMITED) -> None:
        """Start what is due, as far as streams are free, and write all that is to be written."""
        free = min(self._wanted, self._allowed) - len(self._exchanges)
        for _ in range(min(free, most, self._schedule.due(now))):
            self._start(now)
        if self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def close(self) -> None:
        self._wanted = 0
        self._closing = True
        self._give_up("unanswered")
        self._transport.abort()

    def _start(self, now: float) -> None:
        index, intended = self._schedule.take(now)
        self._tally.start(intended)
        request = self._session.source(index)
        opening, block = self._session.encoded(request)
        stream = self._next_stream
        self._next_stream = stream + 2
        self._exchanges[stream] = Exchange(index, intended)
        self._out += (opening, WORD.pack(stream), block)
        if request.body:
            self._start_body(stream, request.body)

    def _start_body(self, stream: int, body: bytes) -> None:
        size = len(body)
        if size <= min(self._window, self._stream_window, self._frame_limit):
            self._window -= size
            self._send(DATA, END_STREAM, stream, body)
        else:
            self._uploads[stream] = Upload(body, self._stream_window)
            self._push(stream)

    def _push(self, stream: int) -> None:
        """Send as much of a held-back body as the windows let through."""
        upload = self._uploads[stream]
        while (size := min(len(upload.rest), upload.window, self._window, self._frame_limit)) > 0:
            piece, upload.rest = upload.rest[:size], upload.rest[size:]
            upload.window -= size
            self._window -= size
            self._send(DATA, 0 if upload.rest else END_STREAM, stream, piece)
        if not upload.rest:
            del self._uploads[stream]

    def _send(self, frame_type: int, flags: int, stream: int, payload: bytes | memoryview) -> None:
        self._out += (FRAME.pack(len(payload) << 8 | frame_type, flags, stream), payload)

    def _give_up(self, reason: str) -> None:
        for exchange in self._exchanges.values():
            self._tally.failure(exchange.intended, reason)
        self._exchanges.clear()
        self._uploads.clear()

    def _rest_or_leave(self) -> None:
        if not self._wanted:
            self._transport.abort()
        elif self._schedule.over:
            self._session.settle()

    def _read(self, data: bytes, now: float) -> bytes:
        """Take in all the whole frames; gives the part of a frame that is left over."""
        at, end = 0, len(data)
        while end - at >= FRAME.size:
            word, flags, stream = FRAME.unpack_from(data, at)
            frame_type, start, after = word & 0xFF, at + FRAME.size, at + FRAME.size + (word >> 8)
            if after > end:
                _check_size(word >> 8)
                break
            at = after
            if frame_type == HEADERS:
                self._on_headers(stream, flags, data[start:after], now)
            elif frame_type == DATA:
                self._on_data(stream, flags, data[start:after], now)
            elif frame_type in self._controls:
                self._controls[frame_type](stream, flags, data[start:after])
        return data[at:]

    def _on_headers(self, stream: int, flags: int, block: bytes, now: float) -> None:
        if flags & PADDED:
            block = block[1 : len(block) - block[0]]
        if flags & PRIORITY:
            block = block[5:]
        if flags & END_HEADERS:
            self._on_block(stream, flags, block, now)
        else:
            self._split = flags, block

    def _on_continuation(self, stream: int, flags: int, payload: bytes) -> None:
        first_flags, block = self._split
        self._split = first_flags, block + payload
        if flags & END_HEADERS:
            self._on_block(stream, first_flags, block + payload, perf_counter())

    def _on_block(self, stream: int, flags: int, block: bytes, now: float) -> None:
        exchange = self._exchanges.get(stream)
        if exchange is None:
            return
        if exchange.status < FINAL:  # Else these are trailers.
            exchange.status = status_of(block)
        if flags & END_STREAM:
            self._end(stream, exchange, now)

    def _on_data(self, stream: int, flags: int, payload: bytes, now: float) -> None:
        self._used = self._refill(0, self._used + len(payload))
        exchange = self._exchanges.get(stream)
        if exchange is None:
            return
        if self._session.on_answer:
            exchange.body += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
        if flags & END_STREAM:
            self._end(stream, exchange, now)
        else:
            exchange.used = self._refill(stream, exchange.used + len(payload))

    def _refill(self, stream: int, used: int) -> int:
        """Give a window back when half of it is used; gives what is still to be given back."""
        if used * 2 < WINDOW:
            return used
        self._send(WINDOW_UPDATE, 0, stream, WORD.pack(used))
        return 0

    def _end(self, stream: int, exchange: Exchange, now: float) -> None:
        del self._exchanges[stream]
        if self._uploads.pop(stream, None):  # Answered early: the rest of the body is not wanted.
            self._send(RST_STREAM, 0, stream, WORD.pack(CANCEL))
        self._tally.answer(exchange.intended, now, exchange.status)
        if self._session.on_answer:
            self._session.on_answer(exchange.index, exchange.status, bytes(exchange.body))

    def _fail(self, stream: int, reason: str) -> None:
        self._uploads.pop(stream, None)
        if exchange := self._exchanges.pop(stream, None):
            self._tally.failure(exchange.intended, reason)

    def _on_reset(self, stream: int, _flags: int, payload: bytes) -> None:
        self._fail(stream, f"reset {WORD.unpack(payload)[0]}")

    def _on_goaway(self, _stream: int, _flags: int, payload: bytes) -> None:
        self._wanted = 0
        last, code = struct.unpack_from(">II", payload)
        for stream in [stream for stream in self._exchanges if stream > last]:
            self._fail(stream, f"goaway {code}")

    def _on_ping(self, _stream: int, flags: int, payload: bytes) -> None:
        if not flags & ACK:
            self._send(PING, ACK, 0, payload)

    def _on_settings(self, _stream: int, flags: int, payload: bytes) -> None:
        if flags & ACK:
            self.ready.set()
            return
        settings = dict(SETTING.iter_unpack(payload))
        self._allowed = settings.get(MAX_STREAMS, self._allowed)
        self._frame_limit = settings.get(MAX_FRAME, self._frame_limit)
        self._resize(settings.get(INITIAL_WINDOW, self._stream_window))
        self._send(SETTINGS, ACK, 0, b"")

    def _resize(self, window: int) -> None:
        """A new first window moves those of the open streams too, even below zero."""
        for upload in self._uploads.values():
            upload.window += window - self._stream_window
        self._stream_window = window
        self._push_all()

    def _on_window_update(self, stream: int, _flags: int, payload: bytes) -> None:
        (more,) = WORD.unpack(payload)
        if stream == 0:
            self._window += more
            self._push_all()
        elif stream in self._uploads:
            self._uploads[stream].window += more
            self._push(stream)

    def _push_all(self) -> None:
        for stream in list(self._uploads):
            self._push(stream)


def _check_size(size: int) -> None:
    if size > DEFAULT_FRAME:  # Also what the first bytes of an HTTP/1 answer look like.
        raise ProtocolError(f"a frame of {size} bytes")
