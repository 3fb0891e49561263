"""`clarion demo`: fills its own app with users and devices, and keeps sending events."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from typing import Annotated

import msgspec
import uvloop
from cyclopts import Parameter
from cyclopts.validators import Number

from clarion.cli.demo import own_app
from clarion.cli.demo.life import Life
from clarion.cli.demo.people import make_people
from clarion.cli.demo.preparation import Preparation
from clarion.cli.demo.progress import Counts
from clarion.cli.device.listen import find_gateway
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.remote_server import RemoteServer, find_server
from clarion.cli.server_connection import explain_failure
from clarion.client import ApiError, AsyncClarion, NotReached
from clarion.errors import CommandFailed
from clarion.settings import Settings

# The same people each time, with the same habits.
_SEED = 7
_HISTORY = 300

People = Annotated[int, Parameter(validator=Number(gte=10, lte=1_000))]
Speed = Annotated[float, Parameter(validator=Number(gt=0, lte=50))]
Minutes = Annotated[float, Parameter(validator=Number(gt=0, lte=24 * 60))]


def demo(
    *,
    people: People = 50,
    speed: Speed = 1.0,
    minutes: Minutes = 60.0,
    remove: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Fill an app with users, devices and events.

    Parameters
    ----------
    people
        How many users the app has, 10 to 1,000.
    speed
        Speed factor, at most 50. Default: 1, about an event per second.
    minutes
        How long it runs; Ctrl-C ends it before.
    remove
        Delete the app of the demo with all its data instead.

    """
    found = load_settings(settings)
    if remove:
        is_removed = uvloop.run(own_app.remove(found))
        print("Removed the demo." if is_removed else "There is no demo to remove.")
        return
    uvloop.run(_run(found, people, speed, minutes))


async def _run(settings: Settings, people: int, speed: float, minutes: float) -> None:
    # Failures are reported in one sentence; the logs of the libraries would add a page.
    logging.disable()
    server = find_server(settings)
    await _check(server)
    app = await own_app.find_or_create(settings)
    chance, counts = random.Random(_SEED), Counts()  # noqa: S311 - no secrets
    async with AsyncClarion(server.api_url, api_key=app.api_key) as clarion:
        preparation = Preparation(clarion, make_people(people, chance), chance, counts)
        gateway = find_gateway(server)
        life = Life(clarion, preparation, gateway, counts, chance, speed)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, life.stopped.set)
        try:
            await _live(preparation, life, minutes, f"{server.api_url}/admin/apps/{app.id}")
        except (ApiError, NotReached, ExceptionGroup) as failed:
            raise CommandFailed(_explain(_find_cause(failed), server)) from failed
    print(f"The app is {own_app.NAME} ({app.id}). Remove it with: clarion demo --remove")


async def _check(server: RemoteServer) -> None:
    """Make sure that the server runs, before an app is created on it."""
    async with AsyncClarion(server.api_url, api_key="", attempts=1) as anyone:
        try:
            await anyone.request("GET", "/health", returns=msgspec.Raw)
        except NotReached as error:
            raise CommandFailed(_explain(error, server)) from error


async def _live(preparation: Preparation, life: Life, minutes: float, dashboard: str) -> None:
    print(f"Filling the app {own_app.NAME} with {len(preparation.people)} people …", flush=True)
    devices = await preparation.run()
    await preparation.add_history(_HISTORY)
    await life.read_some(preparation.people)
    print(f"Events, readers and devices are at work: {dashboard}", flush=True)
    print("Press Ctrl-C to stop.", flush=True)
    await life.run(devices, minutes * 60)


def _find_cause(failed: Exception) -> ApiError | NotReached:
    """Return why one of several calls failed; raise any other error, which is a bug."""
    while isinstance(failed, ExceptionGroup):
        failed = failed.exceptions[0]
    if not isinstance(failed, ApiError | NotReached):
        raise failed
    return failed


def _explain(cause: ApiError | NotReached, server: RemoteServer) -> str:
    if isinstance(cause, NotReached):
        return explain_failure(ConnectionRefusedError(), server.api_url, "--listen")
    return f"The server refused what the demo sent: {cause}"
