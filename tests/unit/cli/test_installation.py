"""What a command knows of the server that it talks to."""

from pathlib import Path

import msgspec
import pytest

from clarion.cli.first_run import AdminCard, AppCard, FirstRun, TlsCard, Urls
from clarion.cli.installation import find_installation
from clarion.errors import StartError
from clarion.settings import load

THEN = Urls("http://127.0.0.1:1", "https://127.0.0.1:2", "ws://127.0.0.1:3", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder whose first run had other addresses than the usual ones."""
    app = AppCard("app", "com.example.demo", "ck_key", "secret", "TEAM", "KEY", "/gone/Auth.p8")
    first = FirstRun(AdminCard("admin", "password"), app, TlsCard("/gone/ca.pem"), THEN)
    (tmp_path / "first-run.json").write_bytes(msgspec.json.encode(first))
    return tmp_path


def test_the_addresses_are_those_of_the_first_run(folder: Path) -> None:
    found = find_installation(load({"data": str(folder)}))
    urls = (found.api_url, found.push_url, found.gateway_url)
    assert urls == (THEN.api, THEN.tls, THEN.gateway)


def test_settings_say_more_than_the_first_run(folder: Path) -> None:
    found = find_installation(load({"data": str(folder), "listen": "127.0.0.1:9"}))
    assert (found.api_url, found.push_url) == ("http://127.0.0.1:9", THEN.tls)


def test_without_tls_pushes_go_to_the_plain_listener(folder: Path) -> None:
    found = find_installation(load({"data": str(folder), "tls-listen": "off"}))
    assert found.push_url == THEN.api


def test_flags_say_more_than_both(folder: Path) -> None:
    found = find_installation(
        load({"data": str(folder)}),
        url="http://a/",
        gateway_url="ws://b/v1/gateway",
        api_key="ck_other",
    )
    assert (found.api_url, found.push_url, found.gateway_url) == ("http://a", "http://a", "ws://b")
    assert found.api_key == "ck_other"


def test_a_folder_that_was_moved_still_finds_its_provider_key(folder: Path) -> None:
    (folder / "provider-keys").mkdir()
    (folder / "provider-keys" / "Auth.p8").write_bytes(b"key")
    assert find_installation(load({"data": str(folder)})).provider_key == b"key"


def test_without_a_first_run_the_usual_addresses_are_tried(tmp_path: Path) -> None:
    found = find_installation(load({"data": str(tmp_path)}))
    assert found.gateway_url == "ws://127.0.0.1:8081"
    with pytest.raises(StartError, match="clarion init"):
        _ = found.api_key


def test_a_broken_first_run_is_told(folder: Path) -> None:
    (folder / "first-run.json").write_text("{}")
    with pytest.raises(StartError, match="not as `clarion init` wrote it"):
        find_installation(load({"data": str(folder)}))
