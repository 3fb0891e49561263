"""Load over HTTP/2: frames by hand on uvloop, so that the generator stays ahead of the server.

`python -m bench.load URL` sends one request over and over; `run` and `run_in_process` take a
function from index to request. Without a rate every stream is kept busy (closed loop); with one,
requests go out on schedule whatever the server does, and latency counts from the scheduled time.
"""

import argparse
import asyncio
import ctypes
import json
import math
import multiprocessing
import os
import ssl
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import CLOCK_MONOTONIC, perf_counter, process_time
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x01, 0x01, 0x04, 0x08, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 1, 2, 3, 4, 5
CANCEL = 8

# Length and kind share the first word, so one unpack reads a whole frame header.
FRAME = struct.Struct(">IBI")
SETTING = struct.Struct(">HI")
WORD = struct.Struct(">I")

DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
# What the peer may send unasked, a stream and a connection alike; refilled when half is used.
WINDOW = 4 * 1024 * 1024
UNLIMITED = sys.maxsize
# A status below this one announces another.
FINAL = 200
# More ticks than this would cost more than their precision is worth.
SHORTEST_TICK_S = 0.0002


class ProtocolError(Exception):
    """The peer sent what HTTP/2 does not allow here."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Headers go out as given. A Struct, because making one must cost next to nothing."""

    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Source = Callable[[int], Request]
OnAnswer = Callable[[int, int, bytes], None]  # index, status, body


@dataclass(frozen=True, kw_only=True)
class Load:
    """How hard and how long; `total` ends the run early, `grace_s` is the wait for late answers.

    It can be pickled, so TLS is a flag; without a `ca_file` any certificate will do.
    """

    host: str
    port: int
    tls: bool = False
    ca_file: str | None = None
    connections: int = 1
    streams: int = 100
    duration_s: float = 5.0
    warm_up_s: float = 0.0
    total: int | None = None
    rate: float | None = None
    connect_s: float = 10.0
    grace_s: float = 5.0

    @property
    def longest_s(self) -> float:
        """No run takes longer, the start of a process for it included."""
        return self.connect_s + self.warm_up_s + self.duration_s + self.grace_s + 10.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was started after the warm-up, and what became of it; latencies in seconds, sorted.

    An error is a request without an answer, apart from three: "connect" and "disconnect" count
    connections, and "unsent" requests that were due when no stream was free for them. The number
    in "reset 7" or "goaway 2" is an error code of RFC 9113, section 7.
    """

    sent: int
    by_status: dict[int, int]
    errors: dict[str, int]
    seconds: float
    cpu_s: float
    latencies: "array[float]"

    @property
    def answered(self) -> int:
        """Answers of any status."""
        return len(self.latencies)

    @property
    def throughput(self) -> float:
        """Answers a second, up to the last one."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """Share of one core that the generator used; near 1.0 it was the bottleneck itself."""
        return self.cpu_s / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """Latency that `percent` of the answers did not exceed; NaN when nothing was answered."""
        if not self.latencies:
            return math.nan
        rank = math.ceil(len(self.latencies) * percent / 100)
        return self.latencies[max(rank, 1) - 1]

    def summary(self) -> dict[str, object]:
        """Everything but the single latencies, ready for JSON."""
        percentiles = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
        return {
            "sent": self.sent,
            "by_status": self.by_status,
            "errors": self.errors,
            "seconds": round(self.seconds, 3),
            "throughput": round(self.throughput, 1),
            "busy": round(self.busy, 3),
            **{f"{name}_ms": self._milliseconds(p) for name, p in percentiles.items()},
        }

    def _milliseconds(self, percent: float) -> float | None:
        return round(self.percentile(percent) * 1000, 3) if self.latencies else None


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


@lru_cache(maxsize=64)
def _opening(method: str, scheme: str, authority: str) -> bytes:
    verb = {"GET": b"\x82", "POST": b"\x83"}.get(method, b"\x02" + _text(method))
    return verb + (b"\x87" if scheme == "https" else b"\x86") + b"\x01" + _text(authority)


def _header_frame(request: Request, scheme: str, authority: str) -> tuple[bytes, bytes]:
    """Give what stands before the stream id, and what stands after it."""
    opening = _opening(request.method, scheme, authority)
    block = opening + b"\x04" + _text(request.path) + _fields(request.headers)
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


class _Schedule:
    """Which request is due when. Before `begin` none is; a closed loop always has one due."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rate = load.rate
        self._origin = 0.0
        self._limit = 0
        self._issued = 0

    def begin(self, now: float) -> float:
        """Gives the intended time of the first request that counts, if that is known already."""
        self._origin = now
        self._limit = UNLIMITED
        if self._rate is None:
            return math.inf
        first = math.ceil(self._rate * self._load.warm_up_s)
        in_time = math.ceil(self._rate * self._load.duration_s)
        self._limit = first + min(self._load.total or UNLIMITED, in_time)
        return now + first / self._rate

    def measure(self, now: float) -> float:
        """End the warm-up of a closed loop; from here on requests count."""
        self._limit = min(self._issued + (self._load.total or UNLIMITED), UNLIMITED)
        return now

    def due(self, now: float) -> int:
        if self._rate is None:
            return self._limit - self._issued
        return min(self._limit, int((now - self._origin) * self._rate) + 1) - self._issued

    def take(self, now: float) -> tuple[int, float]:
        index = self._issued
        self._issued = index + 1
        return index, now if self._rate is None else self._origin + index / self._rate

    def stop(self, now: float) -> int:
        """Nothing is due any more; gives how many were and have not been sent."""
        unsent = 0 if self._limit == UNLIMITED else self.due(now)
        self._limit = self._issued
        return unsent

    @property
    def next_due(self) -> float:
        return self._origin + self._issued / (self._rate or math.inf)

    @property
    def over(self) -> bool:
        return self._issued >= self._limit


class _Tally:
    """What became of the requests meant to start at `since` or later."""

    def __init__(self) -> None:
        self.since = math.inf
        self.last = 0.0
        self.sent = 0
        self.by_status = [0] * 1000
        self.errors: Counter[str] = Counter()
        self.latencies = array("d")

    def start(self, intended: float) -> None:
        if intended >= self.since:
            self.sent += 1

    def answer(self, intended: float, now: float, status: int) -> None:
        if intended >= self.since:
            self.by_status[status] += 1
            self.latencies.append(now - intended)
            self.last = now

    def failure(self, intended: float, reason: str) -> None:
        if intended >= self.since:
            self.errors[reason] += 1

    def unsent(self, count: int) -> None:
        if count > 0:
            self.errors["unsent"] += count

    def result(self, until: float, cpu_s: float) -> Result:
        return Result(
            sent=self.sent,
            by_status={status: n for status, n in enumerate(self.by_status) if n},
            errors=dict(self.errors),
            seconds=max(until, self.last, self.since) - self.since,
            cpu_s=cpu_s,
            latencies=array("d", sorted(self.latencies)),
        )


class _Session:
    """What the connections of a run share, and how they tell that nothing is left to do."""

    def __init__(self, load: Load, source: Source, on_answer: OnAnswer | None) -> None:
        self.load = load
        self.source = source
        self.on_answer = on_answer
        self.schedule = _Schedule(load)
        self.tally = _Tally()
        self.live: list[_Connection] = []
        self.fault: BaseException | None = None
        self._quiet = asyncio.Event()
        self._place = "https" if load.tls else "http", f"{load.host}:{load.port}"
        self._encoded: tuple[Request | None, tuple[bytes, bytes]] = None, (b"", b"")

    def encoded(self, request: Request) -> tuple[bytes, bytes]:
        """Encode a request, unless it is the very object of the last time."""
        if self._encoded[0] is not request:
            self._encoded = request, _header_frame(request, *self._place)
        return self._encoded[1]

    def fill(self) -> None:
        """Start what is due, evenly over the connections and with another one first each time."""
        now = perf_counter()
        due = self.schedule.due(now)
        if due > 0 and self.live:
            share = -(-due // len(self.live))
            self.live.append(self.live.pop(0))
            for connection in self.live:
                connection.fill(now, share)

    def settle(self) -> None:
        if not self.live or (self.schedule.over and all(c.idle for c in self.live)):
            self._quiet.set()

    def fail(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Keep an exception of a callback, such as the caller's own, for the end of the run."""
        if exception := context.get("exception"):
            self.fault = cast("BaseException", exception)
            self._quiet.set()

    async def wait(self, seconds: float) -> None:
        """Wait for the time to pass or for the end of all work, whichever comes first."""
        self._quiet.clear()
        self.settle()
        if self.fault:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._quiet.wait()
        except TimeoutError:
            return


class _Exchange:
    """A request under way, and what has come of its answer."""

    __slots__ = ("body", "index", "intended", "status", "used")

    def __init__(self, index: int, intended: float) -> None:
        self.index = index
        self.intended = intended
        self.status = 0
        self.used = 0
        self.body = bytearray()


class _Upload:
    """The part of a request body that flow control holds back."""

    __slots__ = ("rest", "window")

    def __init__(self, body: bytes, window: int) -> None:
        self.rest = memoryview(body)
        self.window = window


class _Connection(asyncio.Protocol):
    """One HTTP/2 connection: frames in, answers to the tally, the next requests out."""

    def __init__(self, session: _Session) -> None:
        self.ready = asyncio.Event()
        self._session = session
        self._tally = session.tally
        self._schedule = session.schedule
        self._exchanges: dict[int, _Exchange] = {}
        self._uploads: dict[int, _Upload] = {}
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
        self._exchanges[stream] = _Exchange(index, intended)
        self._out += (opening, WORD.pack(stream), block)
        if request.body:
            self._start_body(stream, request.body)

    def _start_body(self, stream: int, body: bytes) -> None:
        size = len(body)
        if size <= min(self._window, self._stream_window, self._frame_limit):
            self._window -= size
            self._send(DATA, END_STREAM, stream, body)
        else:
            self._uploads[stream] = _Upload(body, self._stream_window)
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

    def _send(self, kind: int, flags: int, stream: int, payload: bytes | memoryview) -> None:
        self._out += (FRAME.pack(len(payload) << 8 | kind, flags, stream), payload)

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
            kind, start, after = word & 0xFF, at + FRAME.size, at + FRAME.size + (word >> 8)
            if after > end:
                _check_size(word >> 8)
                break
            at = after
            if kind == HEADERS:
                self._on_headers(stream, flags, data[start:after], now)
            elif kind == DATA:
                self._on_data(stream, flags, data[start:after], now)
            elif kind in self._controls:
                self._controls[kind](stream, flags, data[start:after])
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

    def _end(self, stream: int, exchange: _Exchange, now: float) -> None:
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


def _tls(load: Load) -> ssl.SSLContext | None:
    if not load.tls:
        return None
    context = ssl.create_default_context(cafile=load.ca_file)
    context.set_alpn_protocols(["h2"])
    if load.ca_file is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _connect(session: _Session) -> None:
    """Open one connection after the other, as far as that goes in the time there is."""
    load, context = session.load, _tls(session.load)
    create = asyncio.get_running_loop().create_connection
    with suppress(OSError):
        async with asyncio.timeout(load.connect_s):
            for _ in range(load.connections):
                _, opened = await create(
                    lambda: _Connection(session), load.host, load.port, ssl=context
                )
                await opened.ready.wait()
    for connection in session.live:
        if not connection.ready.is_set():
            connection.close()
    if missing := load.connections - sum(c.ready.is_set() for c in session.live):
        session.tally.errors["connect"] = missing


class _Pacer:
    """Wakes an open loop when a request falls due; a closed one is driven by its answers.

    It is a timer of the kernel, because those of the event loop are rounded to a millisecond.
    """

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = self._libc.timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._timer < 0:
            raise OSError(ctypes.get_errno(), "no timer")
        asyncio.get_running_loop().add_reader(self._timer, self._on_time)

    def arm(self) -> None:
        """Set the timer to the next request due, or a tick from now when it is due already."""
        at = max(self._session.schedule.next_due, perf_counter() + SHORTEST_TICK_S)
        once_at = struct.pack("@4l", 0, 0, int(at), int(at % 1 * 1e9))
        self._libc.timerfd_settime(self._timer, 1, once_at, None)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._timer)
        os.close(self._timer)

    def _on_time(self) -> None:
        os.read(self._timer, 8)
        self._session.fill()
        self.arm()


@contextmanager
def _pacing(session: _Session) -> Iterator[None]:
    if session.load.rate is None:
        yield
        return
    pacer = _Pacer(session)
    pacer.arm()
    try:
        yield
    finally:
        pacer.stop()


async def _drive(session: _Session) -> Result:
    asyncio.get_running_loop().set_exception_handler(session.fail)
    await _connect(session)
    session.tally.since = session.schedule.begin(perf_counter())
    with _pacing(session):
        await _warm_up(session)
        result = await _measure(session)
    if session.fault:
        raise session.fault
    return result


async def _warm_up(session: _Session) -> None:
    if session.load.warm_up_s:
        session.fill()
        await session.wait(session.load.warm_up_s)


async def _measure(session: _Session) -> Result:
    load, schedule, tally, cpu_s = session.load, session.schedule, session.tally, process_time()
    if load.rate is None:
        tally.since = schedule.measure(perf_counter())
    session.fill()
    await session.wait(load.duration_s)
    until = min(perf_counter(), tally.since + load.duration_s)
    if load.rate is None:
        tally.unsent(schedule.stop(until))
    await session.wait(load.grace_s)
    tally.unsent(schedule.stop(perf_counter()))
    for connection in session.live:
        connection.close()
    return tally.result(until, process_time() - cpu_s)


def run(load: Load, requests: Request | Source, on_answer: OnAnswer | None = None) -> Result:
    """Put the load on the server, in this process; `on_answer` gets every body, whole.

    A source may give one object again and again, which is then encoded only once. An exception
    of the source or of `on_answer` ends the run and is raised here.
    """
    source = (lambda _: requests) if isinstance(requests, Request) else requests
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(_Session(load, source, on_answer)))


def _report(pipe: Pipe, load: Load, requests: Request | Source) -> None:
    pipe.send(run(load, requests))


def run_in_process(load: Load, requests: Request | Source) -> Result:
    """Do `run` in a fresh process; a source must be a function (or partial) a module defines."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(sender, load, requests), daemon=True)
    child.start()
    sender.close()
    try:
        if not receiver.poll(load.longest_s):
            raise TimeoutError(f"no result of the load after {load.longest_s:.0f} s")
        return cast("Result", receiver.recv())
    except EOFError as error:
        raise ChildProcessError("the load failed; its process printed why") from error
    finally:
        child.kill()
        child.join()
        receiver.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--streams", type=int, default=100, help="in flight, each connection")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--grace", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--total", type=int, help="stop after so many requests")
    parser.add_argument("--rate", type=float, help="requests a second, sent on schedule")
    parser.add_argument("--method", help="GET, or POST when there is a body")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--body", default="", metavar="TEXT|@FILE")
    parser.add_argument("--ca", metavar="FILE", help="else any certificate will do")
    parser.add_argument("--json", action="store_true")
    return parser


def _load_of(options: argparse.Namespace) -> Load:
    url = urlsplit(options.url)
    tls = url.scheme == "https"
    return Load(
        host=url.hostname or "127.0.0.1",
        port=url.port or (443 if tls else 80),
        tls=tls,
        ca_file=options.ca,
        connections=options.connections,
        streams=options.streams,
        duration_s=options.seconds,
        warm_up_s=options.warm_up,
        grace_s=options.grace,
        total=options.total,
        rate=options.rate,
    )


def _request_of(options: argparse.Namespace) -> Request:
    url = urlsplit(options.url)
    text: str = options.body
    body = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    pairs = [header.partition(":") for header in options.header]
    return Request(
        method=options.method or ("POST" if body else "GET"),
        path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
        headers=tuple((name.strip(), value.strip()) for name, _, value in pairs),
        body=body,
    )


def _line(result: Result) -> str:
    times = "  ".join(f"p{p} {result.percentile(p) * 1000:.2f} ms" for p in (50, 90, 99, 100))
    counts = [*result.by_status.items(), *result.errors.items()]
    outcome = ", ".join(f"{name}: {count:,}" for name, count in counts)
    return f"{result.throughput:,.0f}/s  {times}  {outcome}  (generator {result.busy:.0%} busy)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load that the command line describes; fails when nothing was answered."""
    options = _parser().parse_args(arguments)
    result = run(_load_of(options), _request_of(options))
    sys.stdout.write((json.dumps(result.summary()) if options.json else _line(result)) + "\n")
    return 0 if result.answered else 1


if __name__ == "__main__":
    sys.exit(main())
