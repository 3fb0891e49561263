"""The devices that `clarion device listen` was: registered once, remembered in the data folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from clarion.cli.calls import Calls, path_part
from clarion.data_directory import write_private
from clarion.errors import StartError

if TYPE_CHECKING:
    from pathlib import Path

    from clarion.cli.installation import Installation
    from clarion.cli.options import ListenOptions

# Enough at a time for the server to group their commits.
_REGISTERING = 32


class KnownDevice(msgspec.Struct, frozen=True):
    """A device and what it needs to come back. The id may be unknown until it has connected."""

    token: str
    secret: str
    device_id: str = ""


class _DeviceFile(msgspec.Struct):
    devices: list[KnownDevice]


class _Registered(msgspec.Struct):
    device_id: str
    token: str
    secret: str


def find_devices(options: ListenOptions, installation: Installation) -> list[KnownDevice]:
    """Return the devices to listen as: named by flags, remembered, or registered now."""
    if options.token or options.secret:
        return [_named(options)]
    file = installation.device_file
    known = [] if options.new else read_devices(file)
    missing = options.count - len(known)
    if missing > 0:
        known += _register(missing, installation)
        _remember(file, known)
    return known[: options.count]


def read_devices(file: Path) -> list[KnownDevice]:
    """Return the devices of last time, the first one first; none if there was no such time."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=_DeviceFile).devices
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        msg = f"Cannot read {file}. Delete it, or register a fresh device with --new."
        raise StartError(msg) from error


def subscribe(device_id: str, topics: tuple[str, ...], installation: Installation) -> None:
    """Let a device hear topics."""
    with Calls(installation.api_url, installation.trust) as calls:
        for topic in topics:
            path = f"/v1/devices/{device_id}/topics/{path_part(topic, '--topic')}"
            calls.ask_api("PUT", path, api_key=installation.api_key, kind=type(None))


def _named(options: ListenOptions) -> KnownDevice:
    if not (options.token and options.secret):
        msg = "--token and --secret: give both or neither"
        raise StartError(msg)
    if options.count > 1 or options.new:
        msg = "--token names one device that is there: leave out --count and --new"
        raise StartError(msg)
    return KnownDevice(options.token, options.secret)


def _register(count: int, installation: Installation) -> list[KnownDevice]:
    shares = [len(range(start, count, _REGISTERING)) for start in range(min(count, _REGISTERING))]
    with ThreadPoolExecutor(_REGISTERING) as threads:
        groups = threads.map(lambda share: _register_share(share, installation), shares)
        return [device for group in groups for device in group]


def _register_share(count: int, installation: Installation) -> list[KnownDevice]:
    body = {"platform": "clarion", "label": "clarion device listen"}
    with Calls(installation.api_url, installation.trust) as calls:
        key = installation.api_key
        made = [
            calls.ask_api("POST", "/v1/devices", api_key=key, body=body, kind=_Registered)
            for _ in range(count)
        ]
    return [KnownDevice(new.token, new.secret, new.device_id) for new in made]


def _remember(file: Path, devices: list[KnownDevice]) -> None:
    content = msgspec.json.format(msgspec.json.encode(_DeviceFile(devices)), indent=2)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, content)
    except OSError as error:
        msg = f"Cannot write {file}: {error.strerror}."
        raise StartError(msg) from error
