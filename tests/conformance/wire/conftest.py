"""What the tests of the wire share."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.cast import Cast
from tests.conformance.clients.http2 import Http2, connected
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.conformance.wire.scene import Scene, make_scene


@pytest.fixture(scope="module")
def scene(server: ConformanceServer, provider: Provider, cast: Cast) -> Scene:
    return make_scene(server, provider, cast)


@pytest.fixture
async def client(server: ConformanceServer) -> AsyncIterator[Http2]:
    async with connected(server.tls_port, server.ca_path) as connection:
        yield connection
