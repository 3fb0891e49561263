"""T28: clients that send nothing, send slowly, or do not read; and more of them than descriptors.

A head has 10 s, a body 30 s. Meanwhile another client is served as usual.
"""

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.faults.http.frames import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    answer_pings,
    frame,
    head,
)
from tests.faults.http.frames import SETTINGS as SETTINGS_FRAME
from tests.faults.http.server import MIB, Target, healthy_requests, watched_memory
from tests.faults.sizes import SIZES
from tests.lanes import is_measured
from tests.programs import find_program

pytestmark = pytest.mark.timeout(SIZES.timeout_s)

HEAD_LIMIT_S = 10.0
BODY_LIMIT_S = 30.0
# A pass of the watcher each second, and a busy machine.
SLACK_S = 6.0
PATIENCE_S = 150.0
HEALTHY_RATIO = 0.99
MEMORY_LIMIT = 64 * MIB
OPENING = PREFACE + frame(SETTINGS_FRAME, 0, 0)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def handshake(target: Target, *protocols: str) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols([*protocols])
    return context.wrap_socket(connect(target.installation.tls_port))


def sending(connection: socket.socket, data: bytes) -> socket.socket:
    connection.sendall(data)
    return connection


# Each was still open after 100 s before there was a watcher, except those in the middle of a head
# or of the handshake.
SILENT: dict[str, Callable[[Target], socket.socket]] = {
    "plain": lambda target: connect(target.port),
    "one byte": lambda target: sending(connect(target.port), b"P"),
    "half a head": lambda target: sending(connect(target.port), b"GET / HTTP/1.1\r\nhost: x\r\nx"),
    "preface only": lambda target: sending(connect(target.port), OPENING),
    "before the handshake": lambda target: connect(target.installation.tls_port),
    "in the handshake": lambda target: sending(connect(target.installation.tls_port), b"\x16\x03"),
    "after the handshake": handshake,
    "after the handshake for HTTP/2": lambda target: handshake(target, "h2"),
}  # fmt: skip


def closed_after_s(connection: socket.socket) -> float:
    """Return after how many seconds the server closed a connection, PINGs being answered."""
    began = time.monotonic()
    with connection:
        assert answer_pings(connection, PATIENCE_S), "it stays open"
    return time.monotonic() - began


def drip_body(target: Target) -> tuple[float, bytes]:
    """Send a byte of a body each second, and return when that was ended, and how."""
    request = (
        f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {target.api_key}\r\n"
        "content-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    ).encode()
    began, answer = time.monotonic(), b""
    with connect(target.port) as connection:
        connection.sendall(request)
        connection.settimeout(1)
        while time.monotonic() - began < PATIENCE_S:
            with suppress(TimeoutError):
                part = connection.recv(65_536)
                if not part:
                    break
                answer += part
            with suppress(OSError):
                connection.sendall(b" ")
    return time.monotonic() - began, answer


@pytest.mark.watched
def test_silent_connections_are_closed_in_time(
    target: Target, figures: Callable[[str], None]
) -> None:
    with healthy_requests(target) as healthy, ThreadPoolExecutor(16) as pool:
        closings = {
            name: pool.submit(closed_after_s, open_(target)) for name, open_ in SILENT.items()
        }
        used = pool.submit(stays_open, target)
        took = {name: closing.result() for name, closing in closings.items()}
    figures(f"T28: closed after {', '.join(f'{name} {s:.1f} s' for name, s in took.items())}")
    assert max(took.values()) < HEAD_LIMIT_S + SLACK_S or not is_measured()
    assert used.result()
    assert healthy.ratio >= HEALTHY_RATIO, healthy.faults[:3]


def test_slow_bodies_are_refused(target: Target, figures: Callable[[str], None]) -> None:
    with healthy_requests(target) as healthy, ThreadPoolExecutor() as pool:
        dripped = list(pool.map(drip_body, [target] * 3))
    figures(f"T28: bodies ended after {[round(s, 1) for s, _ in dripped]} s; {healthy}")
    for seconds, answer in dripped:
        assert seconds > BODY_LIMIT_S - 1
        assert seconds < BODY_LIMIT_S + SLACK_S or not is_measured()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"body_timeout" in answer
    assert healthy.ratio >= HEALTHY_RATIO, healthy.faults[:3]


def test_unfinished_bodies_are_bounded(target: Target, figures: Callable[[str], None]) -> None:
    """200 connections send all of a body of 1 MiB but its last byte."""
    request = (
        f"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {target.api_key}\r\n"
        f"content-type: application/json\r\ncontent-length: {MIB}\r\n\r\n"
    ).encode()
    with (
        watched_memory(target) as growth,
        healthy_requests(target) as healthy,
        ExitStack() as stack,
    ):
        for _ in range(200):
            with suppress(OSError):  # refused while it is being sent
                stack.enter_context(connect(target.port)).sendall(request + b" " * (MIB - 1))
        time.sleep(1)
    figures(f"T28: 200 unfinished bodies of 1 MiB: RSS +{growth[-1] / MIB:.1f} MiB, {healthy}")
    assert growth[-1] < MEMORY_LIMIT
    assert healthy.ratio >= HEALTHY_RATIO, healthy.faults[:3]


def stays_open(target: Target) -> bool:
    """Send one request over HTTP/2 and then answer PINGs, for longer than a head may take."""
    with connect(target.port) as used:
        used.sendall(OPENING + frame(HEADERS, END_HEADERS | END_STREAM, 1, head("/health")))
        return not answer_pings(used, HEAD_LIMIT_S + SLACK_S)


@pytest.mark.parametrize(
    ("listener", "limit"), [("plain", "1024:1024"), ("plain", "1024:"), ("tls", "1024:")]
)
def test_more_silent_connections_than_descriptors_keep_nobody_out(
    tmp_path: Path, listener: str, limit: str, figures: Callable[[str], None]
) -> None:
    """1,224 connections with 1,024 descriptors stopped every listener and the store.

    A limit has a soft part, which the server raises, and a hard one. Under a hard one of 1,024 the
    TLS listener cannot be protected: Granian accepts connections without limit while they are in
    the handshake, and looks at none of them once it fails to accept more.
    """
    installation = Installation(tmp_path, requests_per_minute="100000000")
    installation.under = [find_program("prlimit", "util-linux"), f"--nofile={limit}"]
    first = installation.initialise()
    with installation:
        target = Target(installation, first["app"]["api_key"])
        port = target.port if listener == "plain" else installation.tls_port
        with ExitStack() as stack:
            until = time.monotonic() + 15
            for _ in range(1_224):
                if time.monotonic() > until:
                    break  # the server has stopped accepting them
                with suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=0.1))
            served_after_s = wait_until_served(target)
            with healthy_requests(target) as healthy:
                time.sleep(3)
        written = target.app.ask("PUT", "/v1/users/ana", {"name": "Ana"}).status
        figures(
            f"T28: 1,224 silent {listener} connections, {limit} descriptors: a write and a read "
            f"succeed after {served_after_s:.1f} s, then {healthy}"
        )
        is_low = limit == "1024:1024"
        assert ("few_descriptors" in installation.events()) == is_low
        assert ("connections_closed" in installation.events()) == is_low
    assert written in {200, 201}
    assert served_after_s < HEAD_LIMIT_S + SLACK_S or not is_measured()
    assert healthy.ratio >= HEALTHY_RATIO, healthy.faults[:3]


def wait_until_served(target: Target) -> float:
    """Return after how many seconds a client that comes now has been served, a write included."""
    began = time.monotonic()
    asker = Asker(target.port, target.api_key)
    while time.monotonic() - began < PATIENCE_S:
        with suppress(OSError):
            if asker.ask("PUT", "/v1/users/bo", {"name": "Bo"}).status in {200, 201}:
                return time.monotonic() - began
    raise AssertionError("it serves nobody")


SLOW = {"slow heads": "-H", "slow bodies": "-B", "slow reads": "-X"}


@pytest.fixture(scope="module")
def slowhttptest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, from the PATH or else from Debian's package, which is not installed."""
    if found := shutil.which("slowhttptest"):
        return found
    folder = tmp_path_factory.mktemp("slowhttptest")
    fetch = "apt-get download slowhttptest && dpkg -x slowhttptest_*.deb ."
    fetched = subprocess.run(
        ["/bin/sh", "-c", fetch],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if fetched.returncode:
        pytest.skip(f"needs slowhttptest: apt-get install slowhttptest ({fetched.stderr[-200:]})")
    return str(folder / "usr/bin/slowhttptest")


@pytest.mark.parametrize("attack", SLOW)
def test_slowhttptest(
    target: Target,
    attack: str,
    slowhttptest: str,
    tmp_path: Path,
    figures: Callable[[str], None],
) -> None:
    count, seconds = SIZES.slow_connections, SIZES.slow_s
    url = f"http://127.0.0.1:{target.port}/3/device/00"
    flags = [SLOW[attack], "-c", str(count), "-r", "200", "-i", "2", "-l", str(seconds), "-p", "3"]
    with healthy_requests(target) as healthy:
        done = subprocess.run(
            [slowhttptest, *flags, "-u", url, "-t", "POST" if attack == "slow bodies" else "GET"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + 60,
        )
    figures(f"T28: slowhttptest {attack}, {count} connections for {seconds} s: {healthy}")
    assert healthy.ratio >= HEALTHY_RATIO, (healthy.faults[:3], done.stdout[-500:])
