"""A real server that the modules share, and the apps that use it."""

from collections.abc import Iterator

import pytest

from tests.conformance.device import Api, Device
from tests.conformance.other_apps import OtherApps
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer, Installation, install


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("installation"))


@pytest.fixture(scope="session")
def shared_server(installation: Installation) -> Iterator[ConformanceServer]:
    with ConformanceServer(installation) as running:
        yield running


@pytest.fixture(scope="module")
def server(shared_server: ConformanceServer) -> ConformanceServer:
    """The server of a module; one that stops it, or needs other settings, overrides this."""
    return shared_server


@pytest.fixture(scope="session")
def provider(installation: Installation) -> Provider:
    """The app that `clarion init` made."""
    return installation.provider


@pytest.fixture(scope="session")
def other_apps(installation: Installation) -> OtherApps:
    return installation.other_apps


@pytest.fixture(scope="module")
def api(server: ConformanceServer, provider: Provider) -> Api:
    return Api(server.port, provider)


@pytest.fixture(scope="module")
def other_api(server: ConformanceServer, other_apps: OtherApps) -> Api:
    return Api(server.port, other_apps.other)


@pytest.fixture
async def device(api: Api) -> Device:
    return await api.register()
