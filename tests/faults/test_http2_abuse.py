"""T27: HTTP/2 as its specification wants it (h2spec), and floods of legal frames.

During a flood another client is served as usual, and the memory of the server stays bounded.
"""

import re
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.faults.http.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    answer_pings,
    connected,
    frame,
    head,
)
from tests.faults.http.h2spec import NotBuiltError, find_h2spec
from tests.faults.http.server import MIB, Target, healthy_requests, watched_memory
from tests.faults.sizes import SIZES

# A port that serves HTTP/1.1 too answers what is no preface with 400 in HTTP/1.1, and closes.
ALLOWED_FAILURES = {"Sends invalid connection preface"}
HEALTHY_RATIO = 0.95
MEMORY_LIMIT = 64 * MIB
# Without a key it is answered when the body has ended. An answer at once could cross what h2spec
# sends on the stream, and be taken for the answer to that.
H2SPEC_PATH = "/v1/caller"
STREAMS = 300


@pytest.fixture(scope="module")
def h2spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        return find_h2spec(tmp_path_factory.mktemp("h2spec"))
    except NotBuiltError as error:
        pytest.skip(f"needs h2spec on the PATH, or Go (apt-get install golang-go): {error}")


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "tls"])
def test_h2spec(
    target: Target, h2spec: str, figures: Callable[[str], None], *, over_tls: bool
) -> None:
    port = target.installation.tls_port if over_tls else target.port
    flags = ["-t", "-k"] if over_tls else []
    done = subprocess.run(
        [h2spec, "-h", "127.0.0.1", "-p", str(port), "-P", H2SPEC_PATH, "-o", "5", *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    summary = done.stdout.strip().splitlines()[-1]
    failures = done.stdout.partition("Failures:")[2]
    failed = set(re.findall(r"× \d+: (.+)", failures))
    figures(f"T27: h2spec {'over TLS' if over_tls else 'plain'}: {summary}; failed: {failed}")
    assert re.search(r"14\d tests", summary), done.stdout
    assert failed <= ALLOWED_FAILURES, failures


def rapid_reset(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, head("/health")) + frame(
        RST_STREAM, 0, stream, CANCEL
    )


def reset_by_the_server(stream: int) -> bytes:
    """A request that the server must reset itself: MadeYouReset."""
    block = head("/3/device/00", method="POST", content_length="1")
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, b"ab")


def ping(stream: int) -> bytes:
    return frame(PING, 0, 0, struct.pack(">Q", stream))


def settings(stream: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", 3, stream))


def empty_data(stream: int) -> bytes:
    if stream == 1:
        return frame(HEADERS, END_HEADERS, 1, head("/3/device/00", method="POST"))
    return frame(DATA, 0, 1)


def continuation(stream: int) -> bytes:
    if stream == 1:
        return frame(HEADERS, 0, 1, head("/health"))
    return frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 100)


FLOODS = (rapid_reset, reset_by_the_server, ping, settings, empty_data, continuation)


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_of_frames_keeps_no_client_out(
    target: Target, flood: Callable[[int], bytes], figures: Callable[[str], None]
) -> None:
    sent = connections = 0
    until = time.monotonic() + SIZES.flood_s
    with watched_memory(target) as growth, healthy_requests(target) as healthy:
        while time.monotonic() < until:
            connections += 1
            with suppress(OSError), connected(target.port) as connection:
                for count in pour(connection, flood, until):
                    sent += count
    figures(
        f"T27: {flood.__name__}: {sent} frames on {connections} connections, {healthy}, "
        f"RSS +{growth[-1] / MIB:.0f} MiB"
    )
    assert sent > 100
    assert healthy.ratio >= HEALTHY_RATIO, healthy.faults[:3]
    assert growth[-1] < MEMORY_LIMIT


def pour(connection: socket.socket, flood: Callable[[int], bytes], until: float) -> Iterator[int]:
    """Send frames until the time is over or the server has had enough."""
    connection.settimeout(1)
    stream = 1
    while time.monotonic() < until:
        batch = range(stream, stream + 200, 2)
        connection.sendall(b"".join(flood(number) for number in batch))
        stream += 200
        yield len(batch)
        connection.settimeout(0)
        with suppress(BlockingIOError):
            while connection.recv(1 << 20):
                pass
        connection.settimeout(1)


def test_a_client_that_opens_no_window_costs_little_memory(
    target: Target, figures: Callable[[str], None]
) -> None:
    """300 streams ask for a file of 1.6 MB and let nothing through: this took 483 MB."""
    asked = head("/docs/swagger-ui-bundle.js")
    with (
        watched_memory(target) as growth,
        healthy_requests(target) as healthy,
        connected(target.port, window=0) as connection,
    ):
        for number in range(STREAMS):
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, asked))
        assert not answer_pings(connection, 3)
    figures(f"T27: window 0, {STREAMS} × 1.6 MB: RSS +{growth[-1] / MIB:.1f} MiB, {healthy}")
    assert growth[-1] < MEMORY_LIMIT
    assert healthy.ratio >= HEALTHY_RATIO


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/types", "/metrics"])
def test_other_responses_that_nobody_reads_are_bounded_too(
    target: Target, path: str, figures: Callable[[str], None]
) -> None:
    """Of the framework and of fast routes; to a caller and to an address."""
    size = len(target.app.get(path).body)
    asked = head(path, authorization=f"Bearer {target.api_key}")
    with (
        watched_memory(target) as growth,
        healthy_requests(target) as healthy,
        ExitStack() as stack,
    ):
        for _ in range(4):
            connection = stack.enter_context(connected(target.port, window=0))
            for number in range(STREAMS):
                connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, asked))
        assert not answer_pings(connection, 3)
    figures(
        f"T27: window 0, 4 × {STREAMS} × {path} of {size >> 10} KiB: "
        f"RSS +{growth[-1] / MIB:.1f} MiB, {healthy}"
    )
    assert growth[-1] < MEMORY_LIMIT
    assert healthy.ratio >= HEALTHY_RATIO
