"""The devices of `clarion device listen`: registered once, saved in the data directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from clarion.cli.first_run import to_json
from clarion.cli.remote_server import RemoteServer
from clarion.cli.server_connection import path_part
from clarion.client import Clarion
from clarion.errors import StartError
from clarion.system.data_directory import write_private

# Enough parallel requests for the server to group their commits.
_PARALLEL = 32


class Device(msgspec.Struct, frozen=True):
    """The credentials of a device. The id is only shown; it is not needed to connect."""

    token: str
    secret: str
    device_id: str = ""


class _DeviceFile(msgspec.Struct):
    devices: list[Device]


def find_devices(server: RemoteServer, count: int, *, new: bool) -> list[Device]:
    """Return this many saved devices; those that are missing are registered and saved."""
    known = [] if new else read_devices(server.device_file)
    missing = count - len(known)
    if missing > 0:
        known += _register(missing, server)
        _save(server.device_file, known)
    return known[:count]


def read_devices(file: Path) -> list[Device]:
    """Return the saved devices in order of registration; none if there is no file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_DeviceFile).devices
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise StartError(
            f"Cannot read {file}. Delete it, or register a new device with --new."
        ) from error


def subscribe(device_id: str, topics: tuple[str, ...], api: Clarion) -> None:
    for topic in topics:
        path = f"/v1/devices/{device_id}/topics/{path_part(topic, '--topic')}"
        api.request("PUT", path, returns=type(None))


def _register(count: int, server: RemoteServer) -> list[Device]:
    body = {"platform": "clarion", "label": "clarion device listen"}
    with server.connect_api() as client, ThreadPoolExecutor(_PARALLEL) as threads:

        def register(_number: int) -> Device:
            return client.request("POST", "/v1/devices", body, returns=Device)

        return list(threads.map(register, range(count)))


def _save(file: Path, devices: list[Device]) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, to_json(_DeviceFile(devices)))
    except OSError as error:
        raise StartError(f"Cannot write {file}: {error.strerror}.") from error
