"""Connections are closed when they are idle, worn out, or no longer wanted."""

import asyncio

from aiosmtplib import SMTP

from clarion.channels.smtp_connections import MESSAGES_LIMIT, SmtpConnections
from tests.peers.mail_servers import ScriptedServer


def make(server: ScriptedServer, *, idle_s: float = 60.0) -> SmtpConnections:
    async def open_client() -> SMTP:
        client = SMTP(hostname="127.0.0.1", port=server.port, start_tls=False, timeout=5)
        await client.connect()
        return client

    return SmtpConnections(open_client, 4, idle_s=idle_s)


async def test_an_idle_connection_is_closed() -> None:
    async with ScriptedServer() as server:
        connections = make(server, idle_s=0.05)
        async with connections.lend() as connection:
            pass
        while connection.client.is_connected:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert server.seen == ["QUIT"]
        connections.close()


async def test_a_connection_is_replaced_after_many_messages() -> None:
    async with ScriptedServer() as server:
        connections = make(server)
        for _ in range(MESSAGES_LIMIT + 1):
            async with connections.lend():
                pass
        assert server.connections == 2
        connections.close()


async def test_what_comes_back_after_the_end_is_closed() -> None:
    async with ScriptedServer() as server:
        connections = make(server)
        async with connections.lend() as connection:
            connections.close()
        assert not connection.client.is_connected
