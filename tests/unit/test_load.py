"""The load generator against real servers; run as a program, this file is the server."""

import asyncio
import datetime as dt
import json
import os
import signal
import socket
import struct
import sys
import threading
from array import array
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from granian.constants import Interfaces
from granian.http import HTTP2Settings
from granian.server.embed import Server as Granian

from bench.load import (
    Load,
    ProtocolError,
    Request,
    Result,
    main,
    run,
    run_in_process,
    status_of,
)
from bench.process import Server, ServerError, free_ports, serving
from bench.table import Row, json_lines, size, text
from tests.replacing import replace

ROOT = Path(__file__).parents[2]
STREAMS_ALLOWED = 10
SLOW_S = 0.05

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Application:
    """An ASGI application whose path says what it answers."""

    def __init__(self) -> None:
        self._busy = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        status, body = await self._answer(scope["path"].split("/"), receive)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, path: list[str], receive: Receive) -> tuple[int, bytes]:
        match path:
            case ["", "status", status]:
                return int(status), b""
            case ["", "bytes", size]:
                return 200, pattern(int(size))
            case ["", "length"]:
                return 200, b"%d" % len(await whole_body(receive))
            case ["", "slow"]:
                return 200, b"%d" % await self._slow()
            case _:
                return 200, b""

    async def _slow(self) -> int:
        """Return how many requests were here at a time."""
        self._busy += 1
        busy = self._busy
        await asyncio.sleep(SLOW_S)
        self._busy -= 1
        return busy


def pattern(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def whole_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    return body


async def serve(port: int, certificate: Path | None = None, key: Path | None = None) -> None:
    """Small windows, so that flow control has something to do on both levels."""
    http2 = HTTP2Settings(
        max_concurrent_streams=STREAMS_ALLOWED,
        initial_connection_window_size=100_000,
        initial_stream_window_size=70_000,
    )
    server = Granian(
        Application(),
        port=port,
        interface=Interfaces.ASGI,
        http2_settings=http2,
        ssl_cert=certificate,
        ssl_key=key,
    )
    await server.serve()


@contextmanager
def started(scheme: str = "http", *files: Path) -> Iterator[tuple[int, Server]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.unit.test_load", str(port), *map(str, files)]
    with serving(command, f"{scheme}://127.0.0.1:{port}/", cwd=ROOT) as server:
        yield port, server


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with started() as (port, _):
        yield port


@pytest.fixture
def own_server() -> Iterator[tuple[int, Server]]:
    """A server that the test may end."""
    with started() as server:
        yield server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself; its key stands beside it."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate = folder / "certificate.pem"
    certificate.write_bytes(self_signed(key).public_bytes(serialization.Encoding.PEM))
    return certificate


@pytest.fixture(scope="module")
def tls_port(certificate: Path) -> Iterator[int]:
    with started("https", certificate, certificate.with_name("key.pem")) as (port, _):
        yield port


def self_signed(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    return (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )


def few(port: int, total: int) -> Load:
    return Load(host="localhost", port=port, connections=2, total=total, duration_s=20)


def answers(load: Load, source: Request | Callable[[int], Request]) -> dict[int, bytes]:
    """Bodies by index; nothing may have failed."""
    bodies: dict[int, bytes] = {}
    result = run(load, source, lambda index, _status, body: bodies.update({index: body}))
    assert result.errors == {}
    assert result.by_status == {200: load.total}
    return bodies


def send_signal_at_100(server: Server, number: int, index: int, _: int, __: bytes) -> None:
    if index == 100:
        os.kill(server.pid, number)


def any_status(index: int) -> Request:
    return Request(path=f"/status/{(202, 404, 503, 429)[index % 4]}")


def with_body(size: int, index: int) -> Request:
    return Request(method="POST", path="/length", body=b"x" * (size + index))


def test_statuses_are_counted_right(port: int) -> None:
    result = run(few(port, 400), any_status)
    assert result.by_status == {202: 100, 404: 100, 429: 100, 503: 100}
    assert (result.sent, result.answered, result.errors) == (400, 400, {})


@pytest.mark.parametrize("status", [200, 204, 206, 304, 400, 500, 418, 507, 599])
def test_a_status_is_read_in_whatever_form_the_server_gives_it(port: int, status: int) -> None:
    assert run(few(port, 10), Request(path=f"/status/{status}")).by_status == {status: 10}


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (b"\x88", 200),
        (b"\x20\x8d\x61\x00", 404),
        (b"\x48\x82\x64\x02\x58", 302),  # RFC 7541, C.6.1
        (b"\x48\x83\x64\x0e\xff", 307),  # RFC 7541, C.6.2
        (b"\x08\x03202", 202),
        (b"\x18\x03429", 429),
        (b"\x00\x07:status\x03503", 503),
    ],
)
def test_a_status_may_be_an_index_plain_or_huffman_coded(block: bytes, status: int) -> None:
    assert status_of(block) == status


@pytest.mark.parametrize("block", [b"", b"\x20", b"\x48\x82\x64", b"\x08\x03abc"])
def test_an_invalid_status_is_refused(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        status_of(block)


@pytest.mark.parametrize("size", [1, 16_384, 20_000, 150_000])
def test_bodies_arrive_whole_through_small_windows(port: int, size: int) -> None:
    bodies = answers(few(port, 60), partial(with_body, size))
    assert bodies == {index: b"%d" % (size + index) for index in range(60)}


@pytest.mark.parametrize("size", [0, 40_000, 6_000_000])
def test_answers_are_given_whole_beyond_our_own_windows(port: int, size: int) -> None:
    bodies = answers(few(port, 8), Request(path=f"/bytes/{size}"))
    assert bodies == dict.fromkeys(range(8), pattern(size))


def test_discarded_answers_do_not_close_the_window(port: int) -> None:
    assert run(few(port, 400), Request(path="/bytes/50000")).by_status == {200: 400}


def test_an_answer_before_the_end_of_the_body_is_counted_once(port: int) -> None:
    request = Request(method="POST", path="/status/429", body=bytes(1_000_000))
    result = run(few(port, 30), request)
    assert (result.by_status, result.errors) == ({429: 30}, {})


def test_no_more_streams_are_opened_than_the_server_allows(port: int) -> None:
    load = replace(few(port, 60), connections=1)
    busy = {int(body) for body in answers(load, Request(path="/slow")).values()}
    assert max(busy) == STREAMS_ALLOWED


@pytest.mark.timing
def test_a_run_lasts_as_long_as_asked_and_the_warm_up_is_left_out(port: int) -> None:
    load = Load(host="localhost", port=port, duration_s=0.3, warm_up_s=0.3)
    indexes: list[int] = []
    result = run(load, Request(), lambda index, _status, _body: indexes.append(index))
    assert 0.29 < result.seconds < 2
    assert 0 < result.answered < len(indexes)
    assert result.throughput == result.answered / result.seconds


@pytest.mark.timing
def test_latency_counts_from_the_intended_time(port: int) -> None:
    """One stream, an answer every 50 ms, a request every 10 ms: each waits 40 ms longer."""
    load = replace(few(port, 15), connections=1, streams=1, rate=100)
    result = run(load, Request(path="/slow"))
    assert result.answered == 15
    assert all(
        latency > SLOW_S + index * (SLOW_S - 0.01) - 0.002
        for index, latency in enumerate(result.latencies)
    )


@pytest.mark.timing
def test_an_open_loop_offers_its_rate(port: int) -> None:
    load = Load(host="localhost", port=port, connections=3, rate=400, duration_s=0.5, warm_up_s=0.2)
    result = run(load, Request())
    assert (result.sent, result.by_status, result.errors) == (200, {200: 200}, {})


@pytest.mark.timing
def test_what_an_open_loop_could_not_send_is_an_error(port: int) -> None:
    load = Load(host="localhost", port=port, streams=1, rate=200, duration_s=0.5, grace_s=0.2)
    result = run(load, Request(path="/slow"))
    assert result.sent + result.errors["unsent"] == 100
    assert result.sent == result.answered + result.errors.get("unanswered", 0)


def test_tls_with_a_certificate_that_is_known(tls_port: int, certificate: Path) -> None:
    load = replace(few(tls_port, 60), tls=True, ca_file=str(certificate))
    assert answers(load, partial(with_body, 50_000)).keys() == set(range(60))


def test_tls_with_any_certificate(tls_port: int) -> None:
    assert run(replace(few(tls_port, 60), tls=True), Request()).by_status == {200: 60}


def test_a_server_that_dies_ends_the_run(own_server: tuple[int, Server]) -> None:
    port, server = own_server
    load = Load(host="localhost", port=port, duration_s=60)
    result = run(load, Request(), partial(send_signal_at_100, server, signal.SIGKILL))
    assert result.seconds < 30
    assert result.errors == {"disconnect": 1, "lost": result.sent - result.answered}


def test_a_server_that_hangs_ends_the_run(own_server: tuple[int, Server]) -> None:
    port, server = own_server
    load = Load(host="localhost", port=port, duration_s=0.5, grace_s=0.5)
    result = run(load, Request(), partial(send_signal_at_100, server, signal.SIGSTOP))
    os.kill(server.pid, signal.SIGCONT)
    assert result.errors == {"unanswered": result.sent - result.answered}
    assert result.errors["unanswered"] > 0


def test_a_tls_server_that_dies_ends_the_run(certificate: Path) -> None:
    with started("https", certificate, certificate.with_name("key.pem")) as (port, server):
        load = Load(host="localhost", port=port, tls=True, connections=2, duration_s=60)
        result = run(load, Request(), partial(send_signal_at_100, server, signal.SIGKILL))
    assert result.errors == {"disconnect": 2, "lost": result.sent - result.answered}


def test_a_peer_that_never_speaks_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        load = Load(host="127.0.0.1", port=silent.getsockname()[1], connect_s=0.2)
        assert run(load, Request()).errors == {"connect": 1}


def test_no_server_at_all() -> None:
    result = run(Load(host="localhost", port=free_ports(1)[0], connections=3), Request())
    assert (result.sent, result.throughput) == (0, 0)
    assert result.errors == {"connect": 3}


def test_a_fault_of_the_source_is_raised(port: int) -> None:
    def source(index: int) -> Request:
        return [Request()][index // 100]

    with pytest.raises(IndexError):
        run(few(port, 200), source)


def test_a_fault_of_the_callback_is_raised(port: int) -> None:
    def on_answer(index: int, _status: int, _body: bytes) -> None:
        raise KeyError(index)

    with pytest.raises(KeyError):
        run(few(port, 200), Request(), on_answer)


def test_a_process_of_its_own(port: int) -> None:
    result = run_in_process(few(port, 40), any_status)
    assert result.by_status == dict.fromkeys((202, 404, 429, 503), 10)


def test_a_process_of_its_own_that_fails(port: int) -> None:
    with pytest.raises(ChildProcessError):
        run_in_process(few(port, 40), partial(with_body, None))  # type: ignore[arg-type]


def test_the_command_line_prints_one_line(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://localhost:{port}/status/202?why=not"
    assert main([url, "--total", "20", "--warm-up", "0", "--header", "x-a: b", "--body", "hi"]) == 0
    assert "202: 20" in capsys.readouterr().out


def test_the_command_line_prints_json(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    main([f"http://localhost:{port}/", "--total", "20", "--warm-up", "0", "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert (summary["sent"], summary["by_status"]) == (20, {"200": 20})


def frame(frame_type: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | frame_type, flags, stream) + payload


@contextmanager
def scripted(script: bytes) -> Iterator[int]:
    """A peer that sends SETTINGS, awaits the first request, sends its script and disconnects."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = threading.Thread(target=play, args=(listener, script))
        peer.start()
        yield listener.getsockname()[1]
        peer.join(10)


def play(listener: socket.socket, script: bytes) -> None:
    listener.settimeout(10)
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as received:
        connection.sendall(frame(4, 0, 0, struct.pack(">HI", 3, 3)) + frame(4, 1, 0))
        received.read(24)
        while next_frame(received)[0] != 1:
            pass
        connection.sendall(script)
        while next_frame(received) != (6, 1):
            pass


def next_frame(received: BinaryIO) -> tuple[int, int]:
    """Return type and flags; an answered PING counts as the end: all before it was read."""
    header = received.read(9)
    if len(header) < 9:
        return 6, 1
    word, flags, _ = struct.unpack(">IBI", header)
    received.read(word >> 8)
    return word & 0xFF, flags


PING = frame(6, 0, 0, b"12345678")
OK = b"\x48\x03202"
SCRIPTS = {
    "informational": (frame(1, 4, 1, b"\x48\x03103") + frame(1, 5, 1, OK), {"lost": 2}),
    "split": (frame(1, 1, 1, OK[:2]) + frame(9, 4, 1, OK[2:]), {"lost": 2}),
    "padded": (frame(1, 0x2D, 1, b"\x02" + bytes(5) + OK + bytes(2)), {"lost": 2}),
    "padded data": (frame(1, 4, 1, OK) + frame(0, 9, 1, b"\x02ab\x00\x00"), {"lost": 2}),
    "trailers": (frame(1, 4, 1, OK) + frame(1, 5, 1, b"\x00\x01a\x01b"), {"lost": 2}),
    "unknown frame": (frame(99, 0, 1, b"abc") + frame(1, 5, 1, OK), {"lost": 2}),
    "reset": (frame(3, 0, 1, struct.pack(">I", 7)), {"reset 7": 1, "lost": 2}),
    "goaway": (frame(7, 0, 0, struct.pack(">II", 3, 2)), {"goaway 2": 1, "lost": 2}),
    "garbled": (frame(1, 5, 1, b"\x08\x03abc"), {"protocol fault": 3}),
    "HTTP/1": (b"HTTP/1.1 400 Bad Request\r\n", {"protocol fault": 3}),
}


@pytest.mark.parametrize(("script", "errors"), SCRIPTS.values(), ids=SCRIPTS)
def test_whatever_the_peer_sends_all_three_requests_are_accounted_for(
    script: bytes, errors: dict[str, int]
) -> None:
    with scripted(script + PING) as port:
        result = run(replace(few(port, 3), connections=1), Request())
    assert result.errors == errors | {"disconnect": 1}
    assert result.by_status == ({202: 1} if sum(errors.values()) == 2 else {})


def test_memory_and_processor_time_are_sampled(own_server: tuple[int, Server]) -> None:
    port, server = own_server
    before = server.usage()
    run(few(port, 3000), Request())
    after = server.usage()
    assert after.rss_bytes > 5_000_000
    assert after.cpu_s > before.cpu_s


def test_a_port_is_not_shared_with_another_server(port: int) -> None:
    command = [sys.executable, "-m", "tests.unit.test_load", str(port)]
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(ServerError, match="already"), serving(command, url, cwd=ROOT):
        pytest.fail("it started")


def test_a_server_that_does_not_start_says_why() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no licence')"]
    with pytest.raises(ServerError, match="no licence"), serving(command, "http://127.0.0.1:1/"):
        pytest.fail("it started")


def test_a_server_that_never_answers_is_given_up() -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with (
        pytest.raises(ServerError, match=r"within 0\.3 s"),
        serving(command, "http://127.0.0.1:1/", within_s=0.3),
    ):
        pytest.fail("it answered")


def test_rows_line_up_and_hide_no_errors() -> None:
    result = Result(
        sent=40_001,
        by_status={200: 40_000},
        errors={"lost": 1},
        seconds=2,
        cpu_s=1,
        latencies=array("d", [0.000_32] * 30_000 + [0.001_26] * 10_000),
    )
    baseline = Row(what="h2load", throughput=40_000, note="written in C")
    rows = [baseline, Row.of("ours", result, baseline), Row(what="memory", note=size(9_318))]
    headings, first, second, third = text(rows).splitlines()
    for cell in ("20,000/s", "320 µs", "1.26 ms", "0.50×", "lost: 1"):
        assert cell in second
    assert first.index("40,000/s") == second.index("20,000/s")
    assert headings.index("note") == second.index("lost: 1") == third.index("9.10 KiB")
    assert json.loads(json_lines(rows).splitlines()[1])["p99_s"] == 0.001_26


def test_percentiles_go_by_nearest_rank() -> None:
    latencies = array("d", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    result = Result(sent=10, by_status={}, errors={}, seconds=1, cpu_s=0, latencies=latencies)
    assert [result.percentile(p) for p in (0, 50, 90, 99, 100)] == [1, 5, 9, 10, 10]


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), *map(Path, sys.argv[2:])))
