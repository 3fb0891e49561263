"""What the tests of the wire share."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.clients.http2 import Http2, connected
from tests.conformance.other_apps import OtherApps
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.prepared import PreparedServer, prepare_server


@pytest.fixture(scope="module")
def prepared(
    server: ConformanceServer, provider: Provider, other_apps: OtherApps
) -> PreparedServer:
    return prepare_server(server, provider, other_apps)


@pytest.fixture
async def client(server: ConformanceServer) -> AsyncIterator[Http2]:
    async with connected(server.tls_port, server.ca_path) as connection:
        yield connection
