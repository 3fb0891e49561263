"""HTTP clients against real sockets: what was sent, what was not, and what is read."""

import asyncio
import gzip
import os
import traceback
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from pathlib import Path

import pytest

from clarion.channels.http_clients import (
    RESPONSE_LIMIT_BYTES,
    HttpAnswer,
    HttpClients,
    NoAnswer,
    NotConnected,
    ProviderRequest,
)
from clarion.channels.targets import TargetRefused, Targets
from tests.processes import free_port
from tests.unit.channels.http_peers import (
    OK,
    Http2Script,
    Peer,
    Script,
    answering,
    black_hole,
    breaking_off,
    ignore,
    keep_silent,
    listening,
    receive,
    serve_tls,
    speaking_http2,
    trickling,
)

LOOPBACK = [ip_network("127.0.0.0/8")]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"


@pytest.fixture
async def clients() -> AsyncIterator[HttpClients]:
    clients = HttpClients(Targets(LOOPBACK, resolver=lambda _host: ["127.0.0.1"]))
    yield clients
    await clients.close()


async def post(
    clients: HttpClients, url: str, *, timeout_s: float = 5.0, ca_path: str | None = None
) -> HttpAnswer:
    return await clients.post(
        ProviderRequest(url, {"x-test": "1"}, b"hello", timeout_s, ca_path=ca_path)
    )


async def test_a_request_gets_its_answer(clients: HttpClients) -> None:
    async with listening(answering(OK)) as peer:
        answer = await post(clients, peer.url)
    assert answer == HttpAnswer(200, {"content-length": "2"}, b"ok")
    (request,) = peer.requests
    assert request.body == b"hello"
    assert request.head.startswith(b"POST /hook?token=hidden HTTP/1.1\r\n")
    assert request.headers["host"] == f"localhost:{peer.port}"
    assert request.headers["x-test"] == "1"
    assert "accept-encoding" not in request.headers


async def test_requests_share_a_connection(clients: HttpClients) -> None:
    async with listening(answering(OK)) as peer:
        for _ in range(10):
            await post(clients, peer.url)
        assert (peer.connections, len(peer.requests)) == (1, 10)


async def test_the_first_requests_at_once_share_a_client(clients: HttpClients) -> None:
    async with listening(answering(OK)) as peer:
        await asyncio.gather(*(post(clients, peer.url) for _ in range(8)))
        before = peer.connections
        await asyncio.gather(*(post(clients, peer.url) for _ in range(before)))
        assert peer.connections == before


async def test_http2_is_used_where_the_server_offers_it(
    clients: HttpClients, tmp_path: Path
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    async with listening(speaking_http2(Http2Script.answer), tls=tls) as peer:
        assert (await post(clients, peer.url, ca_path=ca_path)).status == 200
        await asyncio.gather(*(post(clients, peer.url, ca_path=ca_path) for _ in range(20)))
        assert (peer.connections, len(peer.requests)) == (1, 21)


async def test_http1_is_used_where_the_server_offers_no_other(
    clients: HttpClients, tmp_path: Path
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    tls.set_alpn_protocols(["http/1.1"])
    async with listening(answering(OK), tls=tls) as peer:
        assert (await post(clients, peer.url, ca_path=ca_path)).body == b"ok"


# Not sent.


async def test_a_refused_connection_was_not_used(clients: HttpClients) -> None:
    with pytest.raises(NotConnected, match=r"refused the connection \(ECONNREFUSED\)$"):
        await post(clients, f"http://localhost:{free_port()}/")


@pytest.mark.parametrize("timeout_s", [0.6, 2.5])
async def test_a_connection_that_is_never_accepted_was_not_used(
    clients: HttpClients, timeout_s: float
) -> None:
    with black_hole() as port, pytest.raises(NotConnected):
        await post(clients, f"http://localhost:{port}/", timeout_s=timeout_s)


async def test_a_handshake_that_never_ends_is_no_connection(clients: HttpClients) -> None:
    async with listening(ignore) as peer:
        with pytest.raises(NotConnected):
            await post(clients, f"https://localhost:{peer.port}/", timeout_s=0.6)


@pytest.mark.parametrize(
    ("age_days", "host", "knows_authority", "reason"),
    [
        (0, "localhost", True, None),
        (800, "localhost", True, "expired"),
        (0, "hooks.example.com", True, "not valid for name"),
        (0, "localhost", False, "UnknownIssuer"),
    ],
)
async def test_a_certificate_that_is_not_valid_is_no_connection(
    clients: HttpClients,
    tmp_path: Path,
    age_days: int,
    host: str,
    knows_authority: bool,  # noqa: FBT001
    reason: str | None,
) -> None:
    tls, ca_path = serve_tls(tmp_path, age_days=age_days)
    async with listening(answering(OK), tls=tls) as peer:
        tls.set_alpn_protocols(["http/1.1"])
        request = post(
            clients,
            f"https://{host}:{peer.port}/",
            ca_path=ca_path if knows_authority else None,
        )
        if reason is None:
            assert (await request).status == 200
        else:
            with pytest.raises(NotConnected, match=reason):
                await request
            assert not peer.requests


@pytest.mark.parametrize("action", [Http2Script.refuse, Http2Script.go_away_before])
async def test_a_request_that_http2_states_was_not_processed_was_not_sent(
    clients: HttpClients, tmp_path: Path, action: Callable[[Http2Script, int], None]
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    async with listening(speaking_http2(action), tls=tls) as peer:
        with pytest.raises(NotConnected):
            await post(clients, peer.url, ca_path=ca_path)


async def test_a_name_that_cannot_be_resolved_is_no_connection() -> None:
    clients = HttpClients(Targets(resolver=lambda _host: []))
    with pytest.raises(NotConnected, match="cannot be resolved: it has no address"):
        await post(clients, "https://example.com/")


async def test_the_next_address_of_a_name_is_tried() -> None:
    async with listening(answering(OK), address="127.0.0.2") as peer:
        clients = HttpClients(Targets(LOOPBACK, resolver=lambda _host: ["127.0.0.3", "127.0.0.2"]))
        assert (await post(clients, peer.url)).status == 200
        await clients.close()


# Sent, without an answer.


@pytest.mark.parametrize(
    "script",
    [
        breaking_off(),
        breaking_off(b"HTTP/1.1 20"),
        breaking_off(b"HTTP/1.1 200 OK\r\ncontent-le"),
        keep_silent,
        trickling(b"HTTP/1.1 200 OK\r\nx-a: "),
        answering(b"no HTTP\r\n\r\n"),
        answering(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200_000 + b"\r\n"),
    ],
    ids=[
        "reset",
        "half_a_status",
        "half_a_head",
        "silence",
        "byte_by_byte",
        "not_http",
        "huge_head",
    ],
)
async def test_a_request_without_a_head_in_return_may_have_arrived(
    clients: HttpClients, script: Script
) -> None:
    async with listening(script) as peer:
        with pytest.raises(NoAnswer) as raised:
            await post(clients, peer.url, timeout_s=0.6)
    assert "hidden" not in "".join(traceback.format_exception(raised.value))


async def test_a_connection_that_is_reset_at_once_is_an_error(clients: HttpClients) -> None:
    """The request is sent, or not, depending on which is earlier."""
    async with listening(breaking_off(reads=False)) as peer:
        with pytest.raises((NoAnswer, NotConnected)):
            await post(clients, peer.url)


async def test_a_connection_that_ends_with_its_second_request_may_have_sent_it(
    clients: HttpClients,
) -> None:
    async def script(
        peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await receive(peer, reader)
        writer.write(OK)
        await receive(peer, reader)

    async with listening(script) as peer:
        await post(clients, peer.url)
        with pytest.raises(NoAnswer):
            await post(clients, peer.url)
        assert (peer.connections, len(peer.requests)) == (1, 2)


@pytest.mark.parametrize(
    "action",
    [Http2Script.fail, Http2Script.go_away_after, Http2Script.go_away_with_error],
)
async def test_a_request_that_http2_ends_may_have_been_processed(
    clients: HttpClients, tmp_path: Path, action: Callable[[Http2Script, int], None]
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    async with listening(speaking_http2(action), tls=tls) as peer:
        with pytest.raises(NoAnswer):
            await post(clients, peer.url, ca_path=ca_path)
        assert len(peer.requests) == 1


# The status is known.


@pytest.mark.parametrize("script", [breaking_off(HEAD + b"half"), trickling(HEAD)])
async def test_a_status_counts_though_its_body_breaks_off(
    clients: HttpClients, script: Script
) -> None:
    async with listening(script) as peer:
        answer = await post(clients, peer.url, timeout_s=0.6)
    assert (answer.status, answer.body) == (200, b"")


async def test_a_body_that_never_ends_is_not_waited_for(clients: HttpClients) -> None:
    """The sender's own time limit would make a status unknown that is known."""
    now = asyncio.get_running_loop().time
    async with listening(trickling(HEAD)) as peer:
        start = now()
        assert (await post(clients, peer.url, timeout_s=60)).status == 200
        assert now() - start < 30


async def test_a_status_counts_though_its_http2_stream_breaks_off(
    clients: HttpClients, tmp_path: Path
) -> None:
    tls, ca_path = serve_tls(tmp_path)
    async with listening(speaking_http2(Http2Script.break_off), tls=tls) as peer:
        assert (await post(clients, peer.url, ca_path=ca_path)).status == 200


async def test_a_body_is_read_up_to_a_limit(clients: HttpClients) -> None:
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * (4 * RESPONSE_LIMIT_BYTES)
    async with listening(answering(endless)) as peer:
        assert len((await post(clients, peer.url)).body) == RESPONSE_LIMIT_BYTES


async def test_a_compressed_body_stays_as_it_is(clients: HttpClients) -> None:
    bomb = gzip.compress(bytes(16 * 1024 * 1024))
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n"
    async with listening(answering(head.encode() + bomb)) as peer:
        assert (await post(clients, peer.url)).body == bomb[:RESPONSE_LIMIT_BYTES]


async def test_redirects_are_not_followed(clients: HttpClients) -> None:
    async with listening(answering(OK)) as other:
        redirect = f"HTTP/1.1 307 Moved\r\nlocation: {other.url}\r\ncontent-length: 0\r\n\r\n"
        async with listening(answering(redirect.encode())) as peer:
            assert (await post(clients, peer.url)).status == 307
        assert other.connections == 0


async def test_no_proxy_is_taken_from_the_environment(
    clients: HttpClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(answering(OK)) as proxy, listening(answering(OK)) as peer:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        assert (await post(clients, peer.url)).status == 200
        assert (proxy.connections, len(peer.requests)) == (0, 1)


# Where requests go.


async def test_a_private_address_is_not_called() -> None:
    async with listening(answering(OK)) as peer:
        clients = HttpClients(Targets())
        for host in ("localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "0x7f.1", "127.1", "0"):
            with pytest.raises(TargetRefused):
                await post(clients, f"http://{host}:{peer.port}/")
        assert peer.connections == 0


async def test_a_client_in_use_is_not_closed() -> None:
    """The limit holds for clients that are idle; a request under way keeps its own."""
    clients = HttpClients(Targets(LOOPBACK, resolver=lambda _host: ["127.0.0.1"]), limit=1)
    go_on = asyncio.Event()

    async def wait(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await receive(peer, reader)
        await go_on.wait()
        writer.write(OK)

    async with listening(wait) as slow, listening(answering(OK)) as peer:
        first = asyncio.ensure_future(post(clients, slow.url))
        await slow.arrived.wait()
        for number in range(3):
            await post(clients, peer.url.replace("localhost", f"n{number}.example"))
        go_on.set()
        assert (await first).status == 200
        await post(clients, peer.url)
        assert peer.connections == 4  # none was kept for the next
        await post(clients, peer.url)
        assert peer.connections == 4
    await clients.close()


async def test_one_message_for_every_file_that_has_no_certificates(
    clients: HttpClients, tmp_path: Path
) -> None:
    text, folder, missing = tmp_path / "text", tmp_path / "folder", tmp_path / "missing"
    text.write_text("secret")
    folder.mkdir()
    os.mkfifo(tmp_path / "pipe")
    messages = set()
    for path in (text, folder, missing, tmp_path / "pipe", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(NotConnected) as raised:
            await post(clients, "https://localhost/", ca_path=str(path))
        messages.add(str(raised.value))
    assert messages == {"The certificates of ca_path cannot be read."}
