"""Where a command finds the URLs and keys of the server that it calls."""

from pathlib import Path

import msgspec
import pytest

from clarion.cli.first_run import (
    AdminSetup,
    AppCredentials,
    FirstRun,
    KeysDatabase,
    TlsFiles,
    Urls,
    read_first_run,
)
from clarion.cli.remote_server import find_server
from clarion.errors import StartError
from clarion.settings import load

SAVED = Urls("http://127.0.0.1:1", "https://127.0.0.1:2", "ws://127.0.0.1:3", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory whose first-run.json has other addresses than the default ones."""
    app = AppCredentials(
        "app", "com.example.demo", "ck_key", "secret", "TEAM", "KEY", "/gone/Auth.p8"
    )
    database = KeysDatabase("id", "another database")
    first = FirstRun(AdminSetup(), app, TlsFiles("/gone/ca.pem"), SAVED, database)
    (tmp_path / "first-run.json").write_bytes(msgspec.json.encode(first))
    return tmp_path


def test_the_urls_are_those_of_the_first_run(folder: Path) -> None:
    found = find_server(load({"data": str(folder)}))
    urls = (found.api_url, found.push_url, found.gateway_url)
    assert urls == (SAVED.api, SAVED.tls, SAVED.gateway)


def test_settings_win_over_the_first_run(folder: Path) -> None:
    found = find_server(load({"data": str(folder), "listen": "127.0.0.1:9"}))
    assert (found.api_url, found.push_url) == ("http://127.0.0.1:9", SAVED.tls)


def test_without_tls_pushes_go_to_the_plain_listener(folder: Path) -> None:
    found = find_server(load({"data": str(folder), "tls-listen": "off"}))
    assert found.push_url == SAVED.api


def test_flags_win_over_both(folder: Path) -> None:
    found = find_server(
        load({"data": str(folder)}),
        url="http://a/",
        gateway_url="ws://b/v1/gateway",
        api_key="ck_other",
    )
    assert (found.api_url, found.push_url, found.gateway_url) == ("http://a", "http://a", "ws://b")
    assert found.api_key == "ck_other"


def test_the_provider_key_is_found_after_the_folder_was_moved(folder: Path) -> None:
    (folder / "provider-keys").mkdir()
    (folder / "provider-keys" / "Auth.p8").write_bytes(b"key")
    assert find_server(load({"data": str(folder)})).provider_key == b"key"


def test_without_a_first_run_the_default_urls_are_used(tmp_path: Path) -> None:
    found = find_server(load({"data": str(tmp_path)}))
    assert found.gateway_url == "ws://127.0.0.1:8081"
    with pytest.raises(StartError, match="clarion init"):
        _ = found.api_key


def test_a_damaged_first_run_is_reported(folder: Path) -> None:
    (folder / "first-run.json").write_text("{}")
    with pytest.raises(StartError, match="is damaged"):
        find_server(load({"data": str(folder)}))


def test_a_first_run_of_an_earlier_release_is_read(folder: Path) -> None:
    path = folder / "first-run.json"
    saved = msgspec.json.decode(path.read_bytes())
    saved["admin"] = {"username": "admin", "password": "secret"}
    path.write_bytes(msgspec.json.encode(saved))
    assert read_first_run(path).admin.setup_url is None
    assert find_server(load({"data": str(folder)})).api_url == SAVED.api
