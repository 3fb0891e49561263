"""Bytes that nobody should send: each gets the documented answer, and does no harm."""

import asyncio
import os
import random
import ssl

import pytest

from tests.conformance.clients.http2 import Http2, NoAnswerError, Request, connected
from tests.conformance.device import PATIENCE_S, Api, Device, bodies, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.prepared import create, push
from tests.replacing import replace

MEGABYTE = 1024 * 1024
EMPTY, TOO_LARGE = (400, "PayloadEmpty"), (413, "PayloadTooLarge")
DEEP = 100_000

GARBAGE = {
    "no JSON": (b"hello", EMPTY),
    "a form": (b"aps=1&alert=2", EMPTY),
    "half an object": (b'{"aps":', EMPTY),
    "more than an object": (b'{"aps":{}} {}', EMPTY),
    "an array": (b'[{"aps":{}}]', EMPTY),
    "a string": (b'"aps"', EMPTY),
    "null": (b"null", EMPTY),
    "zeros": (bytes(100), EMPTY),
    "a zero in a string": (b'{"aps":"\x00"}', EMPTY),
    "a zero behind": (b'{"aps":{}}\x00', EMPTY),
    "bad UTF-8 in a value": (b'{"aps":"\xff"}', EMPTY),
    "bad UTF-8 in a key": (b'{"\xff":1}', EMPTY),
    "bad UTF-8 further down": (b'{"aps":{"alert":["\xc3\x28"]}}', EMPTY),
    "overlong UTF-8": (b'{"aps":"\xc0\xaf"}', EMPTY),
    "half a surrogate pair": (b'{"aps":"\xed\xa0\x80"}', EMPTY),
    "UTF-16": ('{"aps":{}}'.encode("utf-16"), EMPTY),
    "a byte order mark": (b'\xef\xbb\xbf{"aps":{}}', EMPTY),
    "no number": (b'{"aps":NaN}', EMPTY),
    "quotes of Python": (b"{'aps':{}}", EMPTY),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(50), EMPTY),
    "nested 2,000 times": (b'{"aps":' + b"[" * 2000 + b"]" * 2000 + b"}", EMPTY),
    "nested 100,000 times": (b'{"aps":' + b"[" * DEEP + b"]" * DEEP + b"}", TOO_LARGE),
    "an endless opening": (b"[" * DEEP, TOO_LARGE),
    "1 MiB": (b"x" * MEGABYTE, TOO_LARGE),
    "3 MiB": (b"x" * 3 * MEGABYTE, TOO_LARGE),
}


@pytest.fixture
def good(provider: Provider, device: Device) -> Request:
    return push(provider, device.token)


@pytest.mark.parametrize(("body", "refusal"), GARBAGE.values(), ids=GARBAGE)
async def test_a_body_that_is_garbage_is_refused(
    server: ConformanceServer,
    api: Api,
    client: Http2,
    device: Device,
    good: Request,
    *,
    body: bytes,
    refusal: tuple[int, str],
) -> None:
    async with listening(server, device) as socket:
        assert (await client.ask(replace(good, body=body))).refusal == refusal
        assert (await client.ask(good)).status == 200
        assert bodies([await socket.take()]) == [{"aps": {"alert": "hi"}}]
    assert await api.is_healthy()


@pytest.mark.parametrize("body", [body for body, _ in GARBAGE.values()], ids=GARBAGE)
async def test_a_channel_is_not_made_of_garbage(
    client: Http2, provider: Provider, body: bytes
) -> None:
    status, reason = (await client.ask(replace(create(provider, 1), body=body))).refusal
    assert status in (400, 413)
    assert reason in ("BadRequestPayload", "BadRequestParams", "PayloadTooLarge")


async def test_random_bodies_are_refused(api: Api, client: Http2, good: Request) -> None:
    chance = random.Random(1)
    requests = [replace(good, body=chance.randbytes(chance.randrange(1, 500))) for _ in range(200)]
    answers = await client.ask_all(requests)
    assert {answer.refusal for answer in answers} == {EMPTY}
    assert await api.is_healthy()


async def test_bodies_with_a_byte_wrong_are_refused_or_arrive_as_text(
    server: ConformanceServer, api: Api, client: Http2, device: Device, good: Request
) -> None:
    """Whatever is accepted, the device can read: a frame it cannot would end its connection."""
    chance, text = random.Random(2), '{"aps":{"alert":"Grüße 🎺","badge":[1,2.5e3,true]}}'.encode()
    requests = [replace(good, body=spoil(text, chance)) for _ in range(300)]
    async with listening(server, device) as socket:
        answers = await client.ask_all(requests)
        accepted = {a.headers["apns-id"].decode() for a in answers if a.status == 200}
        taken = await socket.take_many(len(accepted))
    assert {frame["id"] for frame in taken} == accepted
    assert {answer.refusal for answer in answers} <= {(200, None), EMPTY}
    assert await api.is_healthy()


def spoil(text: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(text))
    return text[:at] + bytes([chance.randrange(256)]) + text[at + 1 :]


@pytest.mark.parametrize("name", ["apns-topic", "apns-id", "apns-collapse-id", "authorization"])
async def test_headers_of_garbage_are_refused(
    server: ConformanceServer, client: Http2, good: Request, name: str
) -> None:
    """All that HTTP/2 allows in a header, and a length that it does not refuse yet."""
    for value in ("\u00ff\u0100", "x" * 8_000, "\t", "%00", "'; --"):
        answer = await client.ask(good.but(name, value))
        assert answer.status in (200, 400, 403)
        assert answer.status == 200 or answer.json["reason"]
    async with connected(server.tls_port, server.ca_path) as another:
        assert (await another.ask(good)).status == 200


@pytest.mark.parametrize("path", ["/3/device/%ff%fe", "/3/device/\u00e9", "/3/device/..", "/3/%00"])
async def test_paths_of_garbage_are_refused(client: Http2, good: Request, path: str) -> None:
    answer = await client.ask(replace(good, path=path))
    assert answer.status in (400, 404)


async def test_headers_without_end_are_refused(
    server: ConformanceServer, api: Api, client: Http2, good: Request
) -> None:
    assert (await client.ask(with_headers(good, 200))).status == 431
    with pytest.raises(NoAnswerError, match="connection lost"):
        await client.ask(with_headers(good, 1_000))
    async with connected(server.tls_port, server.ca_path) as another:
        assert (await another.ask(good)).status == 200
    assert await api.is_healthy()


def with_headers(request: Request, count: int) -> Request:
    """As many headers more, of a hundred bytes each; 16 KiB are allowed."""
    more = ((f"x-{number}", "y" * 100) for number in range(count))
    return replace(request, headers=(*request.headers, *more))


async def talk(server: ConformanceServer, data: bytes) -> None:
    """Send bytes to the TLS listener and wait until it has had enough, or we."""
    context = ssl.create_default_context(cafile=server.ca_path)
    _, writer = await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=context)
    writer.write(data)
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
        b"POST /3/device/x HTTP/1.1\r\n",
        os.urandom(5_000),
    ],
    ids=["half a preface", "no settings", "frames of ones", "half a request", "noise"],
)
async def test_a_connection_of_garbage_harms_no_other(
    server: ConformanceServer, api: Api, client: Http2, good: Request, data: bytes
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(talk(server, data) for _ in range(20)))
    assert (await client.ask(good)).status == 200
    assert await api.is_healthy()
