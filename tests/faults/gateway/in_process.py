"""A gateway in the test's own process: real sockets and a real store, and a clock to set."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from bench.installation import Installation
from clarion.access.vault import Vault
from clarion.push.apns.request import Push
from clarion.push.connections import Connections
from clarion.push.dispatch import Dispatch
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import Device, PushPriority
from clarion.push.registry import Registry
from clarion.push.sockets import DeviceEndpoint, DeviceSocket
from clarion.push.sql.devices import Devices
from clarion.push.sql.messages import SqlMessages
from clarion.push.sql.topics import Broadcasts
from clarion.settings import load
from clarion.settings.types import ListenAddress
from clarion.sockets.listener import SocketListener
from clarion.store.opening import migrate
from tests.factories import DAY, FixedClock
from tests.processes import free_port

PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """The gateway, its clock, and the devices that are registered with it."""

    port: int
    clock: FixedClock
    messages: SqlMessages
    broadcasts: Broadcasts
    connections: Connections
    dispatch: Dispatch
    devices: list[Device]
    listener: SocketListener

    @property
    def device(self) -> Device:
        """The first device."""
        return self.devices[0]

    @property
    def socket(self) -> DeviceSocket:
        """The server's end of the device's connection."""
        connection = self.connections.get(self.device.id)
        assert isinstance(connection, DeviceSocket)
        return connection

    async def send(self, payload: bytes) -> str:
        """Accept a push to the device and return the id of its message."""
        message_id = self.clock.new_id()
        assert await self.push(message_id, payload)
        return message_id

    async def push(self, message_id: str, payload: bytes) -> bool:
        """Accept a push to the device; False if it is a repeat."""
        push = Push(
            id=message_id,
            token_hash=self.device.token_hash,
            bundle_id="com.example.demo",
            priority=PushPriority.IMMEDIATE,
            collapse_id=None,
            is_stored=True,
            expires_at=self.clock.now() + DAY,
            payload=payload,
        )
        return await self.dispatch.accept(self.device, push, message_id)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - the gateway signals nobody
            await asyncio.sleep(0.01)


@asynccontextmanager
async def open_gateway(folder: Path, device_count: int = 1) -> AsyncIterator[Gateway]:
    """Open a gateway on a new database in a folder."""
    installation = Installation(
        settings=load({"data": str(folder)}),
        app_id="app",
        bundle_id="com.example.demo",
        api_key="",
        team_id="",
        key_id="",
        provider_key="",
    )
    await migrate(installation.settings.database_url)
    device_ids = await installation.add_devices(device_count)
    async with installation.opened() as engine:
        devices, messages = Devices(engine), SqlMessages(engine)
        broadcasts = Broadcasts(engine)
        clock, connections = FixedClock(), Connections()
        dispatch = Dispatch(
            messages=messages,
            broadcasts=broadcasts,
            connections=connections,
            clock=clock,
            metrics=GatewayMetrics(CollectorRegistry()),
            stored_limit=1000,
        )
        endpoint = DeviceEndpoint(
            registry=Registry(devices, connections, clock, Vault(b"k" * 32)),
            dispatch=dispatch,
            connections=connections,
            clock=clock,
            window_s=30,
        )
        found = [await devices.get("app", device_id) for device_id in device_ids]
        port = free_port()
        listener = SocketListener(endpoint)
        await listener.listen(ListenAddress("127.0.0.1", port))
        heartbeat = asyncio.create_task(listener.run())
        try:
            yield Gateway(
                port=port,
                clock=clock,
                messages=messages,
                broadcasts=broadcasts,
                connections=connections,
                dispatch=dispatch,
                devices=[device for device in found if device is not None],
                listener=listener,
            )
        finally:
            heartbeat.cancel()
            await listener.stop(grace_s=1.0)
