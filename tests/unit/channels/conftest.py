"""Peers on loopback, and the clients that call them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clarion.channels.http_clients import HttpClients
from tests.outgoing import open_http
from tests.peers.authority import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(Path(tmp_path_factory.mktemp("authority")))


@pytest.fixture
async def http() -> AsyncIterator[HttpClients]:
    clients = open_http()
    yield clients
    await clients.close()
