"""T33, T34: more load than the server can take, and one app that sends far more than the others."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Answer, Connection
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

TYPE = "ORDER_READY"
CLIENTS = 40
WARM_UP_S = 1.0
# A quiet app sends this many events in a second, one after another.
QUIET_PER_S = 5
LOOK_EVERY_S = 0.005
SEEN_LIMIT_S = 45.0
BROADCASTS = 50
# On a shared machine a commit can take this long by itself.
NOISE_S = 0.25
REFUSALS = {429, 503}
NORMAL_AGAIN_S = 60.0


@dataclass
class AppClient:
    """One app: its key, and a connection of its own."""

    server: ClarionServer
    api_key: str
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = Connection(self.server.port)

    def close(self) -> None:
        self.connection.close()

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        headers = {"authorization": f"Bearer {self.api_key}", "content-type": "application/json"}
        data = b"" if body is None else json.dumps(body).encode()
        return await self.connection.ask(method, path, headers, data)

    async def set_up(self, users: int) -> None:
        """Create the type and users; in_app is not subject to quiet hours."""
        template = {"body": "{{ label }}", "variables": ["label"]}
        await self.ask("PUT", f"/v1/types/{TYPE}", {"default_channels": ["in_app"]})
        await self.ask("PUT", f"/v1/types/{TYPE}/templates/in_app", template)
        for number in range(users):
            answer = await self.ask("PUT", f"/v1/users/user-{number}", {})
            assert answer.status < 300, answer

    async def time_delivery(self) -> float:
        """Return the seconds from an event to the notification that a reader sees."""
        started = time.monotonic()
        answer = await self.ask("POST", "/v1/events", draft({"user_id": "user-0"}))
        assert answer.status == 202, answer
        path = f"/v1/events/{answer.json['event_id']}"
        while time.monotonic() - started < SEEN_LIMIT_S:
            if (await self.ask("GET", path)).json["status"] == "completed":
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return time.monotonic() - started


def draft(recipient: dict[str, Any]) -> dict[str, Any]:
    return {"type": TYPE, "recipient": recipient, "data": {"label": "x"}}


def p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98]


async def use_quietly(apps: list[AppClient], for_s: float) -> list[float]:
    """Send single events of each app for a while; return how long each took to be seen."""

    async def use(app: AppClient) -> list[float]:
        ends_at, times = time.monotonic() + for_s, []
        while time.monotonic() < ends_at:
            times.append(await app.time_delivery())
            await asyncio.sleep(max(1 / QUIET_PER_S - times[-1], 0))
        return times

    return [each for times in await asyncio.gather(*map(use, apps)) for each in times]


async def be_noisy(app: AppClient, is_over: asyncio.Event) -> int:
    """Send batches of events to everybody, as fast as they are accepted; return how many."""
    sent = 0
    while not is_over.is_set():
        answer = await app.ask(
            "POST", "/v1/events/batch", [draft({"all": True}) for _ in range(BROADCASTS)]
        )
        if answer.status == 202:
            sent += BROADCASTS
        else:
            assert answer.status in REFUSALS, answer
            await asyncio.sleep(0.1)
    return sent


async def test_a_noisy_app_does_not_slow_down_quiet_ones(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T34: the noisy one always has more to do than the server can."""
    async with ClarionServer(tmp_path) as server, AsyncExitStack() as stack:
        keys = [server.create_app(f"com.example.quiet{n}") for n in range(SIZES.quiet_apps)]
        noisy, *quiet = [AppClient(server, key) for key in (server.api_key, *keys)]
        for app in (noisy, *quiet):
            stack.callback(app.close)
        await noisy.set_up(SIZES.noisy_users)
        for app in quiet:
            await app.set_up(1)
        await use_quietly(quiet, WARM_UP_S)
        solo = p99(await use_quietly(quiet, SIZES.noisy_phase_s / 2))
        is_over = asyncio.Event()
        noise = asyncio.ensure_future(be_noisy(noisy, is_over))
        beside = await use_quietly(quiet, SIZES.noisy_phase_s)
        is_over.set()
        sent = await noise
    figures(
        f"T34: {len(quiet)} quiet apps, {len(beside):,} events beside {sent:,} broadcasts to "
        f"{SIZES.noisy_users:,} users: p99 {p99(beside) * 1000:.0f} ms, "
        f"alone {solo * 1000:.0f} ms, slowest {max(beside) * 1000:.0f} ms"
    )
    assert p99(beside) <= SIZES.quiet_p99_factor * solo + NOISE_S


@dataclass
class Offer:
    """What came of the requests of one phase."""

    accepted: int = 0
    refused: list[float] = field(default_factory=list)
    without_retry_after: int = 0
    took_s: float = 0.0

    @property
    def goodput(self) -> float:
        return self.accepted / self.took_s


async def offer(
    server: ClarionServer, per_s: float | None, for_s: float, clients: int = CLIENTS
) -> Offer:
    """Send events at a rate, or one after another; late ones are sent at once."""
    result, started, due = Offer(), time.monotonic(), 0

    async def work() -> None:
        with closing(AppClient(server, server.api_key)) as app:
            await send(app)

    async def send(app: AppClient) -> None:
        nonlocal due
        while time.monotonic() - started < for_s:
            if per_s is not None:
                due += 1
                await asyncio.sleep(max(started + due / per_s - time.monotonic(), 0))
            began = time.monotonic()
            answer = await app.ask("POST", "/v1/events", draft({"user_id": "user-0"}))
            if answer.status == 202:
                result.accepted += 1
                continue
            assert answer.status in REFUSALS, answer
            result.refused.append(time.monotonic() - began)
            result.without_retry_after += answer.retry_after_s is None

    await asyncio.gather(*(work() for _ in range(clients)))
    result.took_s = time.monotonic() - started
    return result


async def oldest_s(server: ClarionServer) -> float:
    """Return the age of the oldest due job, as the metrics show it."""
    async with Connection(server.port) as connection:
        text = (await connection.ask("GET", "/metrics")).body.decode()
    lines = [each for each in text.splitlines() if each.startswith("clarion_queue_oldest_seconds{")]
    return max(float(line.split()[-1]) for line in lines)


async def test_an_overloaded_server_does_as_much_as_before_and_recovers(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T33: half, five times and again half of what the server can do."""
    phase_s = SIZES.overload_phase_s
    async with ClarionServer(tmp_path) as server, AsyncExitStack() as stack:
        app = AppClient(server, server.api_key)
        stack.callback(app.close)
        await app.set_up(1)
        ceiling = (await offer(server, None, phase_s)).goodput
        before = await offer(server, ceiling / 2, phase_s)
        over = await offer(server, ceiling * 5, phase_s, CLIENTS * 5)
        age_s = await oldest_s(server)
        began = time.monotonic()
        slow_s = max(await app.time_delivery(), before.took_s / max(before.accepted, 1))
        normal_s = time.monotonic() - began
        after = await offer(server, ceiling / 2, phase_s)
    refusal_s = p99(over.refused) if len(over.refused) > 1 else 0.0
    figures(
        f"T33: ceiling {ceiling:,.0f}/s; goodput at 0.5x {before.goodput:,.0f}/s, "
        f"at 5x {over.goodput:,.0f}/s, at 0.5x again {after.goodput:,.0f}/s; "
        f"{len(over.refused):,} refused, p99 {refusal_s * 1000:.0f} ms; oldest job {age_s:.1f} s; "
        f"normal after {normal_s:.1f} s (an event took {slow_s:.2f} s)"
    )
    assert over.goodput >= 0.9 * min(ceiling, SIZES.overload_goodput * ceiling)
    assert sum(each.without_retry_after for each in (before, over, after)) == 0
    assert age_s < NORMAL_AGAIN_S
    assert normal_s < NORMAL_AGAIN_S
    assert after.goodput >= 0.8 * before.goodput
