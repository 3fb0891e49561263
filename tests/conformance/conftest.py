"""A real server for each module, and the apps that meet there."""

from collections.abc import Iterator

import pytest

from tests.conformance.cast import Cast, make_cast
from tests.conformance.device import Api
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """The settings of the module's server; a module may override this."""
    return {}


@pytest.fixture(scope="module")
def server(flags: dict[str, str]) -> Iterator[ConformanceServer]:
    with ConformanceServer(**flags) as running:
        yield running


@pytest.fixture(scope="module")
def provider(server: ConformanceServer) -> Provider:
    """The app that `clarion init` made."""
    return server.provider


@pytest.fixture(scope="module")
def api(server: ConformanceServer, provider: Provider) -> Api:
    return Api(server, provider)


@pytest.fixture(scope="module")
def cast(server: ConformanceServer) -> Cast:
    return make_cast(server)
