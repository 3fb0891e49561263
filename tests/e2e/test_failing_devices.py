"""A device whose connections keep failing: left alone for a while, and nothing is lost."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from clarion.push.device_circuits import LEAST_FAILURES
from tests.e2e.conftest import Server
from tests.e2e.own_server import serve
from tests.e2e.provider import push

LIMIT_S = 100


@pytest.fixture(scope="module")
def of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose time can be moved: a device waits up to half a minute."""
    with serve(tmp_path_factory.mktemp("failing"), clock="test") as found:
        yield found


def register(server: Server) -> dict[str, Any]:
    made = server.app.post("/v1/devices", {"platform": "clarion"})
    assert made.status == 201, made.body
    device: dict[str, Any] = made.json
    return device


async def talk(server: Server, device: dict[str, Any], frame: dict[str, Any]) -> tuple[int, str]:
    """Connect, send a frame after `ready`, and return how the server closes."""
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
    async with asyncio.timeout(LIMIT_S), connect(url, ping_interval=None) as socket:
        await socket.send(json.dumps(hello))
        with suppress(ConnectionClosed):
            assert json.loads(await socket.recv())["type"] == "ready"
            await socket.send(json.dumps(frame))
        await socket.wait_closed()
        assert socket.close_code is not None
        return socket.close_code, socket.close_reason or ""


async def receive(server: Server, device: dict[str, Any], count: int) -> list[str]:
    """Connect, and return the ids of so many messages, each acknowledged."""
    url = f"ws://127.0.0.1:{server.installation.gateway_port}/v1/gateway"
    hello = {"type": "hello", "token": device["token"], "secret": device["secret"]}
    ids: list[str] = []
    async with asyncio.timeout(LIMIT_S), connect(url, ping_interval=None) as socket:
        await socket.send(json.dumps(hello))
        while len(ids) < count:
            frame = json.loads(await socket.recv())
            if frame["type"] == "notification":
                ids.append(frame["id"])
                await socket.send(json.dumps({"type": "ack", "id": frame["id"]}))
        await socket.send('{"type":"ping"}')
        assert json.loads(await socket.recv()) == {"type": "pong"}
    return ids


def count_open(server: Server) -> str:
    text = server.anyone.get("/metrics").body.decode()
    (line,) = [
        each for each in text.splitlines() if each.startswith("clarion_device_circuits_open")
    ]
    return line.split()[1]


async def test_a_device_that_keeps_failing_is_left_alone_and_gets_everything_later(
    of_tests: Server,
) -> None:
    device, healthy = register(of_tests), register(of_tests)
    answers = [await talk(of_tests, device, {"type": "nonsense"}) for _ in range(LEAST_FAILURES)]
    assert {code for code, _ in answers} == {4400}
    code, reason = await talk(of_tests, device, {"type": "ping"})
    assert code == 4429
    assert "reconnect in" in reason
    assert count_open(of_tests) == "1.0"
    pushed = [push(of_tests, device["token"]).headers["apns-id"] for _ in range(3)]
    mine = push(of_tests, healthy["token"]).headers["apns-id"]
    assert await receive(of_tests, healthy, 1) == [mine], "another device is not affected"
    moved = of_tests.app.post("/v1/test/clock", {"advance": "PT30S"})
    assert moved.status == 200, moved.body
    assert await receive(of_tests, device, 3) == pushed
    assert count_open(of_tests) == "0.0"
    lines = of_tests.installation.log.read_text().splitlines()
    (line,) = [json.loads(each) for each in lines if "device_circuit_open" in each]
    assert (line["device_id"], line["code"]) == (device["device_id"], 4400)
