"""`clarion device listen`: be a device, or many, and show what arrives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from clarion.cli.devices.known_devices import find_devices, subscribe
from clarion.cli.devices.reconnecting import Gateway, ReconnectingDevice
from clarion.cli.displays import JsonLines, Lines, Summary
from clarion.cli.installation import GATEWAY_PATH
from clarion.clock import SystemClock, to_milliseconds
from clarion.errors import StartError

if TYPE_CHECKING:
    from clarion.cli.devices.device_link import Notification, Ready
    from clarion.cli.devices.known_devices import KnownDevice
    from clarion.cli.displays import Display
    from clarion.cli.installation import Installation
    from clarion.cli.options import ListenOptions

KNOCKING_LIMIT = 64
_TICK_S = 0.2
# Each connection is an open file, and the program has some of its own.
_OTHER_FILES = 100


async def listen(options: ListenOptions, installation: Installation, send_command: str) -> int:
    """Listen until enough has arrived, or until Ctrl-C; return the exit code."""
    # What goes wrong is said in one sentence; the libraries would add a page.
    logging.disable()
    _allow_files(options.count)
    gateway = _find_gateway(installation)
    devices = await asyncio.to_thread(find_devices, options, installation)
    display = _choose_display(options, installation, send_command)
    try:
        try:
            await Listening(options, installation, display).run(devices, gateway)
        finally:
            display.finish()
    except BrokenPipeError:
        # Whoever read our output has gone, like `head`; Python must not try to write it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _find_gateway(installation: Installation) -> Gateway:
    url = installation.gateway_url
    if not url.startswith(("ws://", "wss://")):
        shown = f"not {url!r}" if url else "as the server has none by its settings"
        msg = f"--gateway-url: must be like ws://127.0.0.1:8081, {shown}"
        raise StartError(msg)
    trust = installation.trust() if url.startswith("wss://") else None
    return Gateway(url=url + GATEWAY_PATH, trust=trust, knocking=asyncio.Semaphore(KNOCKING_LIMIT))


def _allow_files(count: int) -> None:
    """Raise the limit of open files as far as this account may."""
    wanted = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        most = hard - _OTHER_FILES
        msg = f"--count: this account may open {hard:,} files, enough for {most:,} devices"
        raise StartError(msg)
    if wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _choose_display(
    options: ListenOptions, installation: Installation, send_command: str
) -> Display:
    if options.json:
        return JsonLines()
    if options.count > 1:
        return Summary(options.count)
    if options.token:
        return Lines("Ctrl-C ends.")
    return Lines(
        f'Push to it from another terminal:  {send_command} "Hello"\n'
        "Ctrl-C ends. The next time it is the same device and gets what it missed;\n"
        f"{installation.device_file} remembers it, --new makes a fresh one."
    )


class Listening:
    """Devices that listen, until there is enough."""

    def __init__(
        self, options: ListenOptions, installation: Installation, display: Display
    ) -> None:
        self._topics = options.topic
        self._left = options.exit_after
        self._installation = installation
        self._display = display
        self._clock = SystemClock()
        self._subscribed: set[str] = set()
        self._enough = asyncio.Event()

    async def run(self, devices: list[KnownDevice], gateway: Gateway) -> None:
        """Be these devices until there is enough."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._enough.set)
        lives = [ReconnectingDevice(device, gateway, self) for device in devices]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(life.run()) for life in lives]
                await self._wait()
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as failed:
            # What befell one is likely to befall all: one sentence is enough.
            raise failed.exceptions[0] from None

    async def _wait(self) -> None:
        while not self._enough.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), _TICK_S)
            self._display.tick(self._clock.now())

    # What the devices tell.

    async def welcome(self, device: KnownDevice, ready: Ready) -> None:
        """Let it hear the topics, and show that it is there."""
        if self._topics and device.token not in self._subscribed:
            await asyncio.to_thread(subscribe, ready.device_id, self._topics, self._installation)
            self._subscribed.add(device.token)
        self._display.show_ready(device, ready, self._clock.now())

    def take(self, device: KnownDevice, message: Notification) -> bool:
        """Show a message, unless there is enough."""
        if self._enough.is_set():
            return False
        now = self._clock.now()
        sent_at = to_milliseconds(datetime.fromisoformat(message.sent_at))
        # Of a server with another clock it may seem to come before it was sent.
        self._display.show(device, message, max(0, now - sent_at), now)
        self._count()
        return True

    def lose(self, device: KnownDevice, why: str, retry_s: float) -> None:
        """Show that the connection is lost."""
        self._display.show_lost(device, why, retry_s)

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._enough.set()
