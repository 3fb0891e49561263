"""The header by which a TCP proxy names the client, and who may send one."""

import ipaddress
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clarion.http.plain.proxy_protocol import Broken, ProxyHeader, read_header
from clarion.http.strangers import is_direct
from tests.unit.http.plain.wires import bodies, listen, respond

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
ASK = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def header(client: str = "192.0.2.7", port: int = 4711, *added: tuple[int, bytes]) -> bytes:
    address = ipaddress.ip_address(client)
    family = 0x11 if address.version == 4 else 0x21
    ends = address.packed * 2 + struct.pack("!HH", port, 443)
    more = b"".join(struct.pack("!BH", kind, len(value)) + value for kind, value in added)
    return SIGNATURE + struct.pack("!BBH", 0x21, family, len(ends + more)) + ends + more


LOCAL = SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
OVER_TLS = (0x20, b"\x01" + bytes(4) + struct.pack("!BH", 0x21, 7) + b"TLSv1.3")


@pytest.mark.parametrize("client", ["192.0.2.7", "2001:db8::7"])
def test_the_client_is_read(client: str) -> None:
    data = header(client)
    assert read_header(data + b"GET /") == ProxyHeader(len(data), (client, "4711"))


@pytest.mark.parametrize(
    ("added", "is_over_tls"),
    [
        ((), False),
        ((OVER_TLS,), True),
        (((0x01, b"h2"), OVER_TLS), True),
        (((0x20, b"\x00" + bytes(4)),), False),
        (((0x20, b""),), False),
    ],
)
def test_whether_the_client_came_over_tls_is_read(added: Any, *, is_over_tls: bool) -> None:
    found = read_header(header("192.0.2.7", 1, *added))
    assert isinstance(found, ProxyHeader)
    assert found.is_over_tls is is_over_tls


def test_a_proxy_may_speak_for_itself() -> None:
    assert read_header(LOCAL) == ProxyHeader(len(LOCAL))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n",
        SIGNATURE + struct.pack("!BBH", 0x31, 0x11, 12) + bytes(12),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4) + bytes(4),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x31, 216) + bytes(216),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 65_535),
    ],
    ids=["HTTP", "version 1", "version 3", "too short", "a Unix socket", "too long"],
)
def test_anything_else_is_broken(data: bytes) -> None:
    assert isinstance(read_header(data), Broken)


@given(st.integers(0, len(header()) - 1))
def test_a_part_of_a_header_is_waited_for(size: int) -> None:
    assert read_header(header()[:size]) is None


@given(st.binary(max_size=64))
def test_no_bytes_are_a_fault_of_ours(data: bytes) -> None:
    read_header(SIGNATURE + data)


async def show(scope: Any, _receive: Any, send: Any) -> None:
    client, scheme, direct = scope["client"][0], scope["scheme"], is_direct(scope)
    await respond(send, f"{client} {scheme} {direct}".encode())


async def test_a_proxy_names_its_client() -> None:
    async with listen(show, is_proxy=lambda _: True) as plain:
        for data, expected in (
            (header(), b"192.0.2.7 http False"),
            (header("192.0.2.7", 1, OVER_TLS), b"192.0.2.7 https False"),
            # It stays without the rights of this machine, whatever it says.
            (header("127.0.0.1"), b"127.0.0.1 http False"),
            (LOCAL, b"127.0.0.1 http False"),
        ):
            assert bodies(await plain.exchange(data + ASK)) == [expected]
            assert bodies(await plain.exchange(data[:9], data[9:], ASK)) == [expected]


async def test_a_proxy_that_names_no_client_is_disconnected() -> None:
    async with listen(show, is_proxy=lambda _: True) as plain, plain.connect() as client:
        await client.send(ASK)
        assert await client.read_rest() == b""


async def test_nobody_else_may_name_a_client() -> None:
    async with listen(show) as plain:
        answer = await plain.exchange(header() + ASK)
        assert answer.startswith(b"HTTP/1.1 400 ")


async def test_clients_count_for_their_own_addresses() -> None:
    ask = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    async with (
        listen(show, is_proxy=lambda _: True, address_limit=1) as plain,
        plain.connect() as first,
        plain.connect() as second,
        plain.connect() as third,
    ):
        for client, address in ((first, "192.0.2.1"), (second, "192.0.2.2"), (third, "192.0.2.1")):
            await client.send(header(address), ask)
            await client.read_until(b"False")
        assert await first.read_rest() == b""
        assert len(plain.connections) == 2
