"""The endpoint of devices: who is let in, and when the window for low priorities opens."""

from types import SimpleNamespace
from typing import Any

import pytest

from clarion.errors import StoreUnavailable
from clarion.nodes.recent_changes import RecentChanges
from clarion.push.connections import Connections
from clarion.push.device_circuits import LEAST_FAILURES, OPEN_MS, DeviceCircuits
from clarion.push.frames import Hello
from clarion.push.model import Device, PushPriority
from clarion.push.session import Acknowledged, Authorise, Dropped, Effect
from clarion.push.sockets import DeviceEndpoint, DeviceSocket
from clarion.sockets.protocol import Close, CloseCode, SendFrame
from clarion.sockets.tasks import BackgroundTasks
from tests.factories import DAY, NOW, FixedClock, make_device, make_message

WINDOW_S = 30
DEVICE = make_device()
HELLO = Hello(token="t", secret="s", cursor={"news": 1})


class Gateway:
    """The registry and dispatch that the endpoint works with: one device, which is let in."""

    def __init__(self) -> None:
        self.is_broken = False
        self.changes = RecentChanges()
        self.tasks = BackgroundTasks()
        self.refills: list[PushPriority] = []
        self.connected: list[tuple[Device, object]] = []
        self.forwarding = self
        self.circuits = DeviceCircuits()
        self.announced: list[str] = []

    async def authorise(self, token: str, secret: str) -> Device | None:
        if self.is_broken:
            raise StoreUnavailable
        return DEVICE if (token, secret) == ("t", "s") else None

    async def connect(self, socket: DeviceSocket, device: Device, cursor: object) -> None:
        assert not socket.session.is_closed
        socket.session.device = device
        self.connected.append((device, cursor))

    def announce_waiting(self, device_id: str) -> None:
        self.announced.append(device_id)

    def refill(self, socket: DeviceSocket, least: PushPriority) -> None:
        assert socket.session.is_ready
        self.refills.append(least)

    def disconnect(self, socket: DeviceSocket) -> None:
        assert socket.session.is_closed


@pytest.fixture
def gateway() -> Any:
    return Gateway()


@pytest.fixture
def connections() -> Connections:
    return Connections()


@pytest.fixture
def endpoint(gateway: Any, connections: Connections, clock: FixedClock) -> DeviceEndpoint:
    return DeviceEndpoint(
        registry=gateway,
        dispatch=gateway,
        connections=connections,
        clock=clock,
        window_s=WINDOW_S,
    )


class Recorder(DeviceSocket):
    """A socket that keeps what it is to carry out."""

    def __init__(self, endpoint: DeviceEndpoint) -> None:
        super().__init__(endpoint)
        self.effects: list[Effect] = []

    def carry_out(self, effects: list[Effect]) -> None:
        self.effects += effects


async def authorise(endpoint: DeviceEndpoint, gateway: Any, hello: Hello) -> list[Effect]:
    socket = Recorder(endpoint)
    endpoint.perform(socket, Authorise(hello))
    await gateway.tasks.finish(5)
    return socket.effects


async def test_a_device_that_is_changed_while_its_origin_is_checked_is_not_connected(
    gateway: Any, connections: Connections, clock: FixedClock
) -> None:
    class SlowOrigins:
        async def is_allowed(self, _app_id: str, _origin: str) -> bool:
            gateway.changes.note(DEVICE.id)
            return True

    endpoint = DeviceEndpoint(
        registry=gateway,
        dispatch=gateway,
        connections=connections,
        clock=clock,
        window_s=WINDOW_S,
        origins=SlowOrigins(),
    )
    socket = Recorder(endpoint)
    socket.origin = "https://app.example.com"
    endpoint.perform(socket, Authorise(HELLO))
    await gateway.tasks.finish(5)
    assert gateway.connected == []
    (close,) = socket.effects
    assert isinstance(close, Close)
    assert close.code is CloseCode.RESTARTING


async def test_a_known_device_is_connected(endpoint: DeviceEndpoint, gateway: Any) -> None:
    assert await authorise(endpoint, gateway, HELLO) == []
    assert gateway.connected == [(DEVICE, {"news": 1})]


async def test_an_unknown_device_is_refused(endpoint: DeviceEndpoint, gateway: Any) -> None:
    (close,) = await authorise(endpoint, gateway, Hello(token="t", secret="x"))
    assert isinstance(close, Close)
    assert close.code is CloseCode.NOT_AUTHORISED
    assert gateway.connected == []


async def test_a_device_of_a_deleted_app_is_refused(endpoint: DeviceEndpoint, gateway: Any) -> None:
    endpoint._deleted_apps = {DEVICE.app_id}
    (close,) = await authorise(endpoint, gateway, HELLO)
    assert isinstance(close, Close)
    assert close.code is CloseCode.NOT_AUTHORISED
    assert gateway.connected == []


async def test_an_app_has_a_limit_and_a_device_that_comes_again_is_not_one_more(
    endpoint: DeviceEndpoint, gateway: Any, connections: Connections
) -> None:
    for device in (make_device(), make_device("other")):
        connected = endpoint.accept()
        connected.session.device = device
        connections.add(device.id, connected)
    endpoint._app_limit = 1
    (close,) = await authorise(endpoint, gateway, HELLO)
    assert isinstance(close, Close)
    assert close.code is CloseCode.TOO_SLOW_OR_FAST
    again = endpoint.accept()
    again.session.device = DEVICE
    connections.add(DEVICE.id, again)
    assert await authorise(endpoint, gateway, HELLO) == []


async def test_without_the_store_the_device_comes_back(
    endpoint: DeviceEndpoint, gateway: Any
) -> None:
    gateway.is_broken = True
    (close,) = await authorise(endpoint, gateway, HELLO)
    assert isinstance(close, Close)
    assert close.code is CloseCode.RESTARTING


async def test_a_device_that_has_left_is_not_connected(
    endpoint: DeviceEndpoint, gateway: Any
) -> None:
    socket = endpoint.accept()
    endpoint.perform(socket, Authorise(HELLO))
    socket.on_ws_disconnected(None)  # type: ignore[arg-type]
    await gateway.tasks.finish(5)
    assert gateway.connected == []


@pytest.mark.parametrize("step", [-DAY, DAY])
async def test_messages_expire_by_the_time_of_day_that_was_set(
    endpoint: DeviceEndpoint, clock: FixedClock, step: int
) -> None:
    session = endpoint.accept().session
    session.device = DEVICE
    session.welcome(0)
    session.refill([], NOW, is_all=True)
    clock.step(step)
    message = make_message(expires_at=NOW + step + 5)
    await endpoint.tick(clock.monotonic())
    clock.advance(4)
    assert isinstance(session.offer(message, clock.monotonic())[1][0], SendFrame)
    clock.advance(1)
    later = message._replace(id="later")
    assert session.offer(later, clock.monotonic())[1] == [Dropped((later,))]


async def test_a_window_opens_once_each_period(
    endpoint: DeviceEndpoint, gateway: Any, connections: Connections
) -> None:
    socket = endpoint.accept()
    socket.session.device = DEVICE
    connections.add(DEVICE.id, socket)
    await endpoint.tick(NOW + WINDOW_S * 1000)
    assert gateway.refills == [], "the device is not ready"
    socket.session.welcome(0)
    assert socket.session.refill([], NOW, is_all=True) == []
    socket.session.offer(make_message(priority=PushPriority.LOW), NOW)
    await endpoint.tick(NOW + WINDOW_S * 1000)
    assert gateway.refills == [], "the window was opened before"
    await endpoint.tick(NOW + 2 * WINDOW_S * 1000)
    assert gateway.refills == [PushPriority.LOW]


async def connect_and_leave(endpoint: DeviceEndpoint, gateway: Any) -> list[Effect]:
    """Connect, and leave at once."""
    socket = Recorder(endpoint)
    endpoint.perform(socket, Authorise(HELLO))
    await gateway.tasks.finish(5)
    # Twice, as after a close of ours: it counts once.
    socket.on_ws_disconnected(None)  # type: ignore[arg-type]
    endpoint.disconnected(socket)
    return socket.effects


async def test_a_device_in_a_loop_has_to_wait_and_then_connects_again(
    endpoint: DeviceEndpoint, gateway: Any, clock: FixedClock
) -> None:
    for _ in range(LEAST_FAILURES):
        assert await connect_and_leave(endpoint, gateway) == []
    for _ in range(3):
        (close,) = await connect_and_leave(endpoint, gateway)
        assert isinstance(close, Close)
        assert close.code is CloseCode.TOO_SLOW_OR_FAST
        assert "reconnect in" in close.reason
    clock.advance(OPEN_MS[1])
    assert await connect_and_leave(endpoint, gateway) == []
    assert len(gateway.connected) == LEAST_FAILURES + 1
    assert await connect_and_leave(endpoint, gateway) != [], "the probe has failed"


async def test_a_device_that_acknowledges_may_leave_at_once_and_often(
    endpoint: DeviceEndpoint, gateway: Any
) -> None:
    gateway.acknowledgements = SimpleNamespace(add=lambda _socket, _messages: None)
    for _ in range(3 * LEAST_FAILURES):
        socket = Recorder(endpoint)
        endpoint.perform(socket, Authorise(HELLO))
        await gateway.tasks.finish(5)
        endpoint.perform(socket, Acknowledged((make_message(),)))
        socket.on_ws_disconnected(None)  # type: ignore[arg-type]
    assert len(gateway.connected) == 3 * LEAST_FAILURES


async def test_what_was_put_off_is_announced_to_other_nodes(
    endpoint: DeviceEndpoint, gateway: Any, clock: FixedClock
) -> None:
    for _ in range(LEAST_FAILURES):
        await connect_and_leave(endpoint, gateway)
    assert gateway.circuits.puts_off(DEVICE.id, clock.monotonic())
    await endpoint.tick(clock.monotonic())
    assert gateway.announced == []
    clock.advance(OPEN_MS[1])
    await endpoint.tick(clock.monotonic())
    assert gateway.announced == [DEVICE.id]
