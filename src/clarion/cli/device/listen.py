"""`clarion device listen`: run one or many test devices and print their messages."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import uvloop
from cyclopts import Parameter
from cyclopts.validators import Number

from clarion.cli.device.client import DeviceClient, Gateway
from clarion.cli.device.connection import Notification, Ready
from clarion.cli.device.credentials import Device, find_devices, subscribe
from clarion.cli.device.output import JsonLines, Output, Summary, TextLines
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.remote_server import GATEWAY_PATH, RemoteServer, find_server
from clarion.client import Clarion
from clarion.clock import SystemClock, to_milliseconds
from clarion.errors import StartError
from clarion.settings import flag_of

COUNT_LIMIT = 10_000
CONNECTING_LIMIT = 64
_TICK_S = 0.2
# Each connection is an open file, and the process has some of its own.
_OTHER_FILES = 100


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ListenOptions:
    """What `clarion device listen` takes.

    Parameters
    ----------
    topic
        Subscribe to this topic; may be repeated. The subscription remains afterwards.
    count
        Run this many devices, and print one line of statistics instead of messages.
    new
        Register a new device instead of using the saved one.
    token
        Connect as the device with this token; needs --secret.
    secret
        The secret of that device.
    exit_after
        Exit after this many messages.
    json
        Print one JSON object per line, for scripts.
    url
        The URL of the API, like http://127.0.0.1:8080.
    gateway_url
        The URL of the gateway, like ws://127.0.0.1:8081. Default: the host of --url, on the next
        port; with https, on the same port.
    api_key
        The API key to register with. Default: the key in first-run.json.

    """

    topic: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    count: Annotated[int, Parameter(validator=Number(gte=1, lte=COUNT_LIMIT))] = 1
    new: Switch = False
    token: str = ""
    secret: str = ""
    exit_after: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
    json: Switch = False
    url: str = ""
    gateway_url: str = ""
    api_key: str = ""


def listen(*, options: ListenOptions | None = None, **settings: SettingFlags) -> None:
    options = options or ListenOptions()
    server = find_server(
        load_settings(settings),
        url=options.url,
        gateway_url=options.gateway_url,
        api_key=options.api_key,
    )
    output = _choose_output(options, server, _send_command(options.url, settings))
    uvloop.run(_listen(options, server, output))


def _send_command(url: str, settings: Mapping[str, str]) -> str:
    """Return a `clarion send` command for the same server, for the user to copy."""
    called = sys.argv[0] if sys.argv[0].endswith("clarion") else "clarion"
    program = "clarion" if shutil.which("clarion") == called else called
    flags = (f"{flag_of(key)} {shlex.quote(value)}" for key, value in settings.items())
    where = (f"--url {shlex.quote(url)}",) if url else ()
    return " ".join((program, "send", *where, *flags))


def _choose_output(options: ListenOptions, server: RemoteServer, send_command: str) -> Output:
    if options.json:
        return JsonLines()
    if options.count > 1:
        return Summary(options.count)
    if options.token:
        return TextLines("Press Ctrl-C to stop.")
    return TextLines(
        f'Send to it from another terminal:  {send_command} "Hello"\n'
        "Press Ctrl-C to stop. The next run uses the same device and receives what it missed.\n"
        f"The device is saved in {server.device_file}; --new registers another."
    )


async def _listen(options: ListenOptions, server: RemoteServer, output: Output) -> None:
    """Run the devices until enough messages have arrived, or until Ctrl-C."""
    # Failures are reported in one sentence; the logs of the libraries would add a page.
    logging.disable()
    _raise_file_limit(options.count)
    gateway = find_gateway(server)
    devices = await asyncio.to_thread(_choose_devices, options, server)
    try:
        try:
            with server.connect_api() if options.topic else nullcontext() as api:
                await Listener(options, api, output).run(devices, gateway)
        finally:
            output.finish()
    except BrokenPipeError:
        # The reader of our output has exited, like `head`; Python must not flush into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _raise_file_limit(count: int) -> None:
    wanted = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        most = hard - _OTHER_FILES
        raise StartError(
            f"--count: this account may open {hard:,} files, enough for {most:,} devices"
        )
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def find_gateway(server: RemoteServer) -> Gateway:
    """Return how to reach the gateway of a server; `StartError` if it has none."""
    url = server.gateway_url
    if not url.startswith(("ws://", "wss://")):
        found = f"not {url!r}" if url else "because --gateway-listen is off"
        raise StartError(f"--gateway-url: must be like ws://127.0.0.1:8081, {found}")
    return Gateway(
        url=url + GATEWAY_PATH,
        tls_context=server.tls_context() if url.startswith("wss://") else None,
        connecting=asyncio.Semaphore(CONNECTING_LIMIT),
    )


def _choose_devices(options: ListenOptions, server: RemoteServer) -> list[Device]:
    if not (options.token or options.secret):
        return find_devices(server, options.count, new=options.new)
    if not (options.token and options.secret):
        raise StartError("--token and --secret: give both or neither")
    if options.count > 1 or options.new:
        raise StartError("--token: cannot be used with --count or --new")
    return [Device(options.token, options.secret)]


class Listener:
    """Observes the devices, and stops them when enough messages have arrived."""

    def __init__(self, options: ListenOptions, api: Clarion | None, output: Output) -> None:
        self._topics = options.topic
        self._left = options.exit_after
        self._api = api
        self._output = output
        self._clock = SystemClock()
        self._subscribed: set[str] = set()
        self._stopped = asyncio.Event()

    async def run(self, devices: list[Device], gateway: Gateway) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stopped.set)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(DeviceClient(device, gateway, self).run())
                    for device in devices
                ]
                await self._wait()
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as failed:
            # Devices usually fail for the same reason: one sentence is enough.
            raise failed.exceptions[0] from None

    async def _wait(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._stopped.wait()
            self._output.tick(self._clock.now())

    async def on_ready(self, device: Device, ready: Ready) -> None:
        """Subscribe the device; its messages are delivered after this returns."""
        if self._api is not None and device.token not in self._subscribed:
            await asyncio.to_thread(subscribe, ready.device_id, self._topics, self._api)
            self._subscribed.add(device.token)
        self._output.show_ready(device, ready, self._clock.now())

    def on_message(self, device: Device, message: Notification) -> bool:
        """Show a new message and return True; False leaves it unacknowledged."""
        if self._stopped.is_set():
            return False
        now = self._clock.now()
        sent_at = to_milliseconds(datetime.fromisoformat(message.sent_at))
        # With another clock on the server, a message can seem to arrive before it was sent.
        self._output.show(device, message, max(0, now - sent_at), now)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._stopped.set()
        return True

    def on_lost(self, device: Device, why: str, retry_s: float) -> None:
        self._output.show_lost(device, why, retry_s)
