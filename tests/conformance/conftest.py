"""A real server for each module, and the apps that meet there."""

from collections.abc import Iterator

import pytest

from tests.conformance.cast import Cast
from tests.conformance.device import Api, Device
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer, Installation, install


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("installation"))


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """The settings of the module's server; a module may override this."""
    return {}


@pytest.fixture(scope="module")
def server(installation: Installation, flags: dict[str, str]) -> Iterator[ConformanceServer]:
    with ConformanceServer(installation, **flags) as running:
        yield running


@pytest.fixture(scope="session")
def provider(installation: Installation) -> Provider:
    """The app that `clarion init` made."""
    return installation.provider


@pytest.fixture(scope="session")
def cast(installation: Installation) -> Cast:
    return installation.cast


@pytest.fixture(scope="module")
def api(server: ConformanceServer, provider: Provider) -> Api:
    return Api(server.port, provider)


@pytest.fixture(scope="module")
def other_api(server: ConformanceServer, cast: Cast) -> Api:
    return Api(server.port, cast.other)


@pytest.fixture
async def device(api: Api) -> Device:
    return await api.register()
