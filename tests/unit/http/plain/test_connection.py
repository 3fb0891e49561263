"""HTTP/1.1 on a connection: requests in order, bodies, ends, and clients that misbehave."""

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.http.plain.wires import bodies, echo, listen, read_body, respond

GET = b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
POST = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
CHUNKED = b"POST /c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


def status_of(answer: bytes) -> int:
    return int(answer.split()[1])


async def test_requests_that_are_sent_at_once_are_answered_in_order() -> None:
    async def slow_first(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/0":
            await asyncio.sleep(0.02)
        await echo(scope, receive, send)

    async with listen(slow_first) as plain:
        answer = await plain.exchange(*(GET % n for n in range(5)), LAST)
    assert bodies(answer) == [*(b"GET /%d ;" % n for n in range(5)), b"GET /last ;"]


async def test_only_one_request_of_a_connection_runs_at_a_time() -> None:
    running, most = 0, 0

    async def count(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        await respond(send)

    async with listen(count) as plain:
        answer = await plain.exchange(b"".join([GET % 1] * 500) + LAST)
    assert answer.count(b"HTTP/1.1 200") == 501
    assert most == 1


async def test_few_requests_of_a_connection_are_parsed_ahead() -> None:
    go_on = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await echo(scope, receive, send)

    shortest, count = b"GET / HTTP/1.1\r\n\r\n", 3_000
    async with listen(wait) as plain, plain.connect() as client:
        await client.send(shortest * count, LAST)
        while not plain.listener._serving.running:  # noqa: ASYNC110 - it is being read
            await asyncio.sleep(0.01)
        connection: Any = plain.connections._list()[0]
        assert len(connection._arrived) < 200
        go_on.set()
        assert bodies(await client.read_all()) == [*[b"GET / ;"] * count, b"GET /last ;"]


async def test_a_body_behind_many_requests_is_read() -> None:
    body = bytes(range(256)) * 200
    async with listen(echo) as plain:
        answer = await plain.exchange(GET % 1 * 300 + POST % (2, len(body), body) + LAST)
    assert bodies(answer)[-2:] == [b"POST /2 " + body + b";", b"GET /last ;"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_it_makes_no_difference_where_the_bytes_are_cut(data: Any) -> None:
    requests = data.draw(
        st.lists(
            st.sampled_from(
                [
                    GET % 7,
                    POST % (1, 5, b"hello"),
                    POST % (2, 0, b""),
                    CHUNKED + b"3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nt: u\r\n\r\n",
                    b"\r\n" + GET % 8,
                ]
            ),
            min_size=1,
            max_size=4,
        )
    )
    wire = b"".join(requests) + LAST
    cuts = sorted(data.draw(st.lists(st.integers(1, len(wire) - 1), max_size=6)))
    parts = [wire[a:b] for a, b in itertools.pairwise([0, *cuts, len(wire)])]

    async def ask(*sent: bytes) -> list[bytes]:
        async with listen(echo) as plain, plain.connect() as client:
            for part in sent:
                await client.send(part)
                await asyncio.sleep(0)
            return bodies(await client.read_all())

    assert asyncio.run(ask(*parts)) == asyncio.run(ask(wire))


async def test_the_body_of_the_last_request_is_read_though_it_comes_late() -> None:
    head = b"POST /0 HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 6\r\n\r\n"
    async with listen(echo) as plain, plain.connect() as client:
        for part in (head, b"abc", b"def"):
            await client.send(part)
            await asyncio.sleep(0.01)
        assert bodies(await client.read_all()) == [b"POST /0 abcdef;"]


async def test_a_client_that_has_ended_its_side_gets_all_responses() -> None:
    async with listen(echo) as plain, plain.connect() as client:
        await client.send(GET % 1, GET % 2)
        client.writer.write_eof()
        assert bodies(await client.read_all()) == [b"GET /1 ;", b"GET /2 ;"]


async def test_head_has_the_length_and_no_body() -> None:
    async with listen(echo) as plain:
        answer = await plain.exchange(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", LAST)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"content-length: 8" in head
    assert bodies(rest) == [b"GET /last ;"]


@pytest.mark.parametrize("status", [204, 304])
async def test_a_response_without_a_body_states_no_length(status: int) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"", status)

    async with listen(app) as plain:
        answer = await plain.exchange(LAST)
    assert status_of(answer) == status
    assert b"content-length" not in answer
    assert b"transfer-encoding" not in answer


@pytest.mark.parametrize(
    ("request_", "is_kept"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
    ],
)
async def test_http_1_0_is_kept_alive_only_if_asked_for(request_: bytes, is_kept: bool) -> None:  # noqa: FBT001
    async with listen(echo) as plain, plain.connect() as client:
        await client.send(request_)
        head = await client.read_until(b"\r\n\r\n")
        assert (b"connection: keep-alive" in head) is is_kept
        assert (b"connection: close" in head) is not is_kept


async def test_a_stream_is_chunked_and_ends_with_the_connection_in_http_1_0() -> None:
    async def stream(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"ab", b"", b"c"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with listen(stream) as plain:
        answer = await plain.exchange(LAST)
        assert answer.endswith(b"\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        answer = await plain.exchange(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert answer.endswith(b"\r\n\r\nabc")
        assert b"connection: close" in answer


async def test_a_client_that_waits_is_told_to_continue_when_its_body_is_wanted() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-Continue\r\ncontent-length: 3\r\n\r\n"
    async with listen(echo) as plain, plain.connect() as client:
        await client.send(head)
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc", LAST)
        assert bodies(await client.read_all()) == [b"POST / abc;", b"GET /last ;"]


async def test_a_client_that_waits_and_is_refused_is_disconnected() -> None:
    async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"no", 401)

    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    async with listen(refuse) as plain:
        answer = await plain.exchange(head)
    assert status_of(answer) == 401
    assert b"connection: close" in answer


async def test_after_an_early_response_the_rest_of_the_body_is_skipped() -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await respond(send, b"no", 401)
        else:
            await echo(scope, receive, send)

    body = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n" * 10_000
    async with listen(refuse) as plain, plain.connect() as client:
        await client.send(POST % (1, len(body), body[:10]))
        assert status_of(await client.read_until(b"no")) == 401
        await client.send(body[10:], LAST)
        assert bodies(await client.read_all()) == [b"GET /last ;"]


async def test_a_body_that_is_refused_and_does_not_end_closes_the_connection() -> None:
    async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"no", 413)

    async with listen(refuse) as plain, plain.connect() as client:
        await client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n")
        assert status_of(await client.read_until(b"no")) == 413
        with pytest.raises(ConnectionError):
            await client.send(*[b"x" * 65_536] * 1_000)


async def test_what_is_not_http_is_refused_after_the_requests_before_it() -> None:
    async with listen(echo) as plain:
        answer = await plain.exchange(GET % 1 + b"NONSENSE\r\n\r\n" + GET % 2)
    first, second = bodies(answer)
    assert first == b"GET /1 ;"
    problem = json.loads(second)
    assert problem["code"] == "malformed_request"
    assert f"x-request-id: {problem['request_id']}".encode() in answer
    assert answer.count(b"HTTP/1.1 400") == 1


async def test_a_body_that_cannot_be_parsed_is_not_complete() -> None:
    ended: list[type[BaseException]] = []

    async def note(_scope: Any, receive: Any, send: Any) -> None:
        try:
            await read_body(receive)
        except ConnectionResetError as error:
            ended.append(type(error))
            await respond(send, b"", 400)

    async with listen(note) as plain:
        answer = await plain.exchange(CHUNKED + b"3\r\nabc\r\nzz\r\n" + GET % 1)
    assert ended == [ConnectionResetError]
    assert answer.count(b"HTTP/1.1 ") == 1
    assert status_of(answer) == 400


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"b" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 200_000,
    ],
    ids=["a value", "the target", "many", "one without an end"],
)
async def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async with listen(echo) as plain:
        answer = await plain.exchange(head)
    assert status_of(answer) == 431
    assert b'"head_too_large"' in answer


async def test_a_head_of_the_largest_size_is_read() -> None:
    rest = b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\na: "
    async with listen(echo) as plain:
        answer = await plain.exchange(b"GET /" + rest + b"b" * 16_300 + b"\r\n\r\n")
        assert status_of(answer) == 200
        answer = await plain.exchange(
            b"GET /" + b"c" * 16_300 + b" HTTP/1.1\r\nhost: x\r\n\r\n", LAST
        )
        assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"2.0", b"3.0"])
async def test_other_versions_are_refused(version: bytes) -> None:
    async with listen(echo) as plain:
        answer = await plain.exchange(b"GET / HTTP/%b\r\nhost: x\r\n\r\n" % version)
    assert status_of(answer) == 400


async def test_another_protocol_is_not_spoken_and_ends_the_connection() -> None:
    offer = b"GET /1 HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    async with listen(echo) as plain:
        answer = await plain.exchange(offer + GET % 2)
    assert bodies(answer) == [b"GET /1 ;"]
    assert b"connection: close" in answer


async def test_the_host_of_a_whole_url_replaces_the_header() -> None:
    async def show(scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"%b %b" % (scope["raw_path"], dict(scope["headers"])[b"host"]))

    async with listen(show) as plain:
        answer = await plain.exchange(
            b"GET http://a:81/b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
    assert bodies(answer) == [b"/b a:81"]


async def test_a_path_is_decoded_as_asgi_says() -> None:
    async def show(scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, scope["path"].encode())

    async with listen(show) as plain:
        answer = await plain.exchange(
            b"GET /a%20b%ff%2f%C3%A4?x#y HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
    assert bodies(answer) == ["/a b�/ä".encode()]


async def test_a_header_with_a_line_end_is_never_sent(capsys: pytest.CaptureFixture[str]) -> None:
    async def inject(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"", 200, (b"location", b"/\r\nset-cookie: a=b"))

    async with listen(inject) as plain:
        assert await plain.exchange(LAST) == b""
    assert "response_failed" in capsys.readouterr().out


async def test_what_may_be_kept_of_a_connection_is_small() -> None:
    keys: list[Any] = []

    async def keep(scope: Any, _receive: Any, send: Any) -> None:
        keys.append(scope["connection"].key)
        await respond(send)

    async with listen(keep) as plain:
        await plain.exchange(GET % 1, LAST)
        await plain.exchange(LAST)
    assert keys[0] is keys[1] is not keys[2]
    assert {type(key) for key in keys} == {object}


async def test_a_response_that_is_not_complete_is_cut_off() -> None:
    async def fail(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError

    async with listen(fail) as plain, plain.connect() as client:
        await client.send(GET % 1)
        await client.read_until(b"half\r\n")
        assert b"0\r\n\r\n" not in await client.read_rest()


async def test_a_response_of_another_length_than_stated_ends_the_connection() -> None:
    async def lie(_scope: Any, _receive: Any, send: Any) -> None:
        await respond(send, b"abc", 200, (b"content-length", b"5"))

    async with listen(lie) as plain:
        answer = await plain.exchange(GET % 1 + GET % 2)
    assert answer.count(b"HTTP/1.1 200") == 1


async def test_a_client_that_reads_nothing_is_waited_for_and_starts_nothing_more() -> None:
    began, sent = 0, 0

    async def large(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal began, sent
        began += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            sent += 1
        await send({"type": "http.response.body", "body": b""})

    async with listen(large) as plain, plain.connect() as client:
        await client.send(GET % 1, GET % 2)
        before = -1
        while before != sent or not sent:
            before = sent
            await asyncio.sleep(0.05)
        assert began == 1
        assert sent < 1_000
        client.writer.transport.abort()


async def test_of_a_client_that_sends_more_than_is_read_little_is_taken() -> None:
    taken = asyncio.Event()

    async def wait(_scope: Any, _receive: Any, send: Any) -> None:
        await taken.wait()
        await respond(send)

    async with listen(wait) as plain, plain.connect() as client:
        await client.send(POST % (1, 1 << 30, b""))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.send(*[b"x" * 65_536] * 4_096)
        client.writer.transport.abort()
        taken.set()


async def test_an_application_learns_that_its_client_has_left() -> None:
    left = asyncio.Event()

    async def wait(_scope: Any, receive: Any, _send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with listen(wait) as plain, plain.connect() as client:
        await client.send(GET % 1)
        await asyncio.sleep(0.01)
        client.writer.close()
        async with asyncio.timeout(5):
            await left.wait()


async def test_a_stop_lets_requests_end_and_closes_the_others() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        await go_on.wait()
        await echo(scope, receive, send)

    async with listen(wait) as plain, plain.connect() as busy, plain.connect() as idle:
        await busy.send(GET % 1, GET % 2)
        await begun.wait()
        stopping = asyncio.create_task(plain.listener.stop(5))
        assert await idle.read_all() == b""
        go_on.set()
        answer = await busy.read_all()
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", plain.port)
    assert bodies(answer) == [b"GET /1 ;"]
    assert b"connection: close" in answer
