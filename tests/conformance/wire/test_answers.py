"""The form of answers: frames, ids, times, and the sizes at which a yes becomes a no."""

import json
import re
import time
import uuid
from http.client import HTTPConnection

import pytest

from tests.conformance.clients.http2 import Http2
from tests.conformance.device import PATIENCE_S, Api, Device, listening
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.prepared import (
    PreparedServer,
    bearer,
    broadcast,
    create,
    list_all,
    manage,
    push,
)
from tests.replacing import replace


def payload(size: int) -> bytes:
    return b'{"a":"%s"}' % (b"x" * (size - 8))


async def test_a_success_without_a_body_is_one_headers_frame(
    prepared: PreparedServer, client: Http2
) -> None:
    """Not even an empty DATA frame may follow: aioapns would break off the connection."""
    identity = bearer(prepared.provider.token())
    made = await client.ask(create(prepared.provider, 1).but(*identity))
    channel_id = made.headers["apns-channel-id"].decode()
    others = (
        push(prepared.provider, prepared.valid),
        broadcast(prepared.provider, channel_id),
        manage(prepared.provider, "DELETE", channel_id),
    )
    answers = [made, *[await client.ask(each.but(*identity)) for each in others]]
    assert [answer.status for answer in answers] == [201, 200, 200, 204]
    assert {(answer.ended_by, len(answer.data_frames)) for answer in answers} == {("HEADERS", 0)}


async def test_channels_are_read_and_listed_as_json(prepared: PreparedServer) -> None:
    read = await prepared.ask(manage(prepared.provider, "GET", prepared.keeping))
    assert read.json == {"message-storage-policy": 1, "push-type": "LiveActivity"}
    listed = await prepared.ask(list_all(prepared.provider))
    assert {prepared.keeping, prepared.passing} <= set(listed.json["channels"])
    assert prepared.deleted not in listed.json["channels"]


@pytest.mark.parametrize(
    "given",
    [
        "123e4567-e89b-12d3-a456-42665544a000",
        "123E4567-E89B-12D3-A456-42665544B000",
        "123e4567-E89B-12d3-a456-42665544C000",
    ],
)
async def test_an_id_is_echoed_byte_for_byte(prepared: PreparedServer, given: str) -> None:
    answer = await prepared.ask(push(prepared.provider, prepared.valid).but("apns-id", given))
    assert (answer.status, answer.headers["apns-id"]) == (200, given.encode())


async def test_an_id_is_echoed_by_a_refusal_too_and_even_if_it_is_the_fault(
    prepared: PreparedServer,
) -> None:
    given = str(uuid.uuid4())
    good = push(prepared.provider, prepared.valid)
    refused = await prepared.ask(good.but("apns-id", given).but("apns-priority", "7"))
    bad = await prepared.ask(good.but("apns-id", "no uuid"))
    assert (refused.status, refused.headers["apns-id"]) == (400, given.encode())
    assert (bad.status, bad.headers["apns-id"]) == (400, b"no uuid")


async def test_without_an_id_one_is_made(prepared: PreparedServer) -> None:
    good = push(prepared.provider, prepared.valid)
    accepted, refused = await prepared.ask(good), await prepared.ask(good.without("apns-topic"))
    made = [answer.headers["apns-id"].decode() for answer in (accepted, refused)]
    assert [str(uuid.UUID(each)) for each in made] == made
    assert len(set(made)) == 2


@pytest.mark.parametrize("name", ["apns-request-id", "apns-id"])
@pytest.mark.parametrize("is_good", [True, False])
async def test_a_request_id_may_come_in_either_header(
    prepared: PreparedServer, name: str, *, is_good: bool
) -> None:
    given = str(uuid.uuid4())
    for request in (broadcast(prepared.provider, prepared.passing), list_all(prepared.provider)):
        asked = request.but(name, given)
        answer = await prepared.ask(asked if is_good else asked.without("authorization"))
        assert answer.status == (200 if is_good else 403)
        assert answer.headers["apns-request-id"] == given.encode()


@pytest.mark.parametrize("end", ["revoked", "token_expired", "uninstalled"])
async def test_a_gone_token_has_an_integer_of_milliseconds(
    prepared: PreparedServer, api: Api, device: Device, end: str
) -> None:
    before = int(time.time() * 1000)
    await api.invalidate(device, end)
    answer = await prepared.ask(push(prepared.provider, device.token))
    assert answer.status == 410
    assert re.search(rb'"timestamp":\d{13}[,}]', answer.body)
    assert before <= answer.json["timestamp"] <= time.time() * 1000


@pytest.mark.parametrize(
    ("suffix", "push_type", "limit"),
    [("", "", 4096), ("", "alert", 4096), (".voip", "voip", 5120), (".voip", "", 5120)],
)
async def test_a_payload_may_have_its_limit_and_no_byte_more(
    prepared: PreparedServer, suffix: str, push_type: str, limit: int
) -> None:
    good = push(prepared.provider, prepared.valid)
    good = good.but("apns-topic", prepared.provider.bundle_id + suffix)
    good = good.but("apns-push-type", push_type) if push_type else good
    assert (await prepared.ask(replace(good, body=payload(limit)))).status == 200
    answer = await prepared.ask(replace(good, body=payload(limit + 1)))
    assert answer.refusal == (413, "PayloadTooLarge")


async def test_a_broadcast_may_have_5120_bytes(prepared: PreparedServer) -> None:
    good = broadcast(prepared.provider, prepared.passing)
    assert (await prepared.ask(replace(good, body=payload(5120)))).status == 200
    answer = await prepared.ask(replace(good, body=payload(5121)))
    assert answer.refusal == (413, "PayloadTooLarge")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"a":' + b"[" * 99 + b"]" * 99 + b"}", 200),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", 400),
        (b'{"a":' * 100 + b"1" + b"}" * 100, 200),
        (b'{"a":' * 101 + b"1" + b"}" * 101, 400),
        (b'{"a":"%s"}' % (rb"\\\"[{" * 200), 200),
        (b'{"a":[%s{}]}' % (b"[],{}," * 200), 200),
    ],
    ids=["99 + 1", "100 + 1", "100", "101", "in a string", "side by side"],
)
async def test_a_payload_may_be_nested_a_hundred_times(
    prepared: PreparedServer, body: bytes, status: int
) -> None:
    answer = await prepared.ask(replace(push(prepared.provider, prepared.valid), body=body))
    assert answer.refusal == (status, None if status == 200 else "PayloadEmpty")


@pytest.mark.parametrize("collapse_id", ["x" * 64, "ü" * 32, "🎺" * 16, "a b, c;d"])
async def test_a_collapse_id_of_64_bytes_arrives_as_it_was(
    server: ConformanceServer, prepared: PreparedServer, device: Device, collapse_id: str
) -> None:
    asked = push(prepared.provider, device.token).but("apns-collapse-id", collapse_id)
    assert (await prepared.ask(asked)).status == 200
    async with listening(server, device) as socket:
        assert (await socket.take())["collapse_id"] == collapse_id


@pytest.mark.parametrize(
    ("push_type", "suffix"),
    [
        ("alert", ""),
        ("background", ""),
        ("complication", ".complication"),
        ("controls", ".push-type.controls"),
        ("fileprovider", ".pushkit.fileprovider"),
        ("liveactivity", ".push-type.liveactivity"),
        ("location", ".location-query"),
        ("mdm", ""),
        ("pushtotalk", ".voip-ptt"),
        ("voip", ".voip"),
        ("widgets", ".push-type.widgets"),
    ],
)
async def test_every_push_type_has_its_topic(
    prepared: PreparedServer, push_type: str, suffix: str
) -> None:
    good = push(prepared.provider, prepared.valid)
    good = good.but("apns-topic", prepared.provider.bundle_id + suffix)
    assert (await prepared.ask(good)).status == 200
    assert (await prepared.ask(good.but("apns-push-type", push_type))).status == 200


async def test_a_bundle_id_may_end_like_a_suffix(prepared: PreparedServer) -> None:
    lookalike = prepared.other_apps.lookalike
    device = await Api(prepared.server.port, lookalike).register()
    good = push(lookalike, device.token)
    assert (await prepared.ask(good)).status == 200
    assert (await prepared.ask(good.but("apns-push-type", "alert"))).status == 200
    assert (await prepared.ask(good.but("apns-topic", f"{lookalike.bundle_id}.voip"))).status == 200
    cut = good.but("apns-push-type", "voip")
    assert (await prepared.ask(cut)).refusal == (400, "TopicDisallowed")


async def test_headers_that_do_not_concern_the_endpoint_do_no_harm(
    prepared: PreparedServer,
) -> None:
    good = push(prepared.provider, prepared.valid)
    for name, value in {
        "content-type": "application/x-www-form-urlencoded",
        "host": "api.push.apple.com",
        "cookie": "a=1",
        "user-agent": "\u00fc",
        "apns-unknown": "1",
        "accept-encoding": "gzip, br",
    }.items():
        good = good.also(name, value)
    assert (await prepared.ask(good.also("cookie", "b=2"))).status == 200


async def test_a_device_token_may_be_written_in_capitals(prepared: PreparedServer) -> None:
    assert (await prepared.ask(push(prepared.provider, prepared.valid.upper()))).status == 200


async def test_the_server_allows_a_thousand_streams_and_announces_it(client: Http2) -> None:
    """What aioapns takes for granted; others wait for the setting."""
    assert client.streams_limit == 1_000


async def test_a_refusal_waits_for_the_body_and_breaks_nothing_off(
    prepared: PreparedServer, client: Http2
) -> None:
    """An answer that overtakes the body is followed by a reset, and curl 7.88 then loses it."""
    good = push(prepared.provider, prepared.valid)
    late = client.begin(good.without("authorization"))
    assert (await client.ask(good)).status == 200
    answer = await client.finish(late, good.body)
    assert answer.refusal == (403, "MissingProviderToken")
    assert (await client.ask(good)).status == 200
    assert client.resets == []


async def test_http_1_is_answered_as_well(
    server: ConformanceServer, provider: Provider, device: Device
) -> None:
    good = push(provider, device.token)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("POST", good.path, good.body, dict(good.headers))
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        assert response.headers["apns-id"]
    finally:
        connection.close()


async def test_a_body_may_come_in_pieces(
    server: ConformanceServer, provider: Provider, device: Device, client: Http2
) -> None:
    body = json.dumps({"aps": {}, "text": "x" * 3000}).encode()
    stream = client.begin(push(provider, device.token))
    for start in range(0, len(body), 100):
        client.send_part(stream, body[start : start + 100])
    assert (await client.finish(stream, b"")).status == 200
    async with listening(server, device) as socket:
        assert (await socket.take())["payload"] == json.loads(body)
