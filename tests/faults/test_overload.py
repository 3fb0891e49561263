"""T33, T34: more load than the server can take, and one app that sends far more than the others."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import pytest

from tests.faults.app_client import AppClient, draft
from tests.faults.clarion_server import ClarionServer
from tests.faults.http_client import Connection
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timing, pytest.mark.timeout(SIZES.timeout_s)]

CLIENTS = 40
WARM_UP_S = 1.0
# A quiet app sends this many events in a second, one after another.
QUIET_PER_S = 5
BROADCASTS = 50
REFUSALS = {429, 503}
NORMAL_AGAIN_S = 60.0


def p99(seconds: list[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98]


def describe(seconds: list[float]) -> str:
    p50_ms, p99_ms, most_ms = (f(seconds) * 1000 for f in (median, p99, max))
    return f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.0f} ms, slowest {most_ms:.0f} ms"


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


@pytest.mark.parametrize("quiet_apps", [1, SIZES.quiet_apps])
async def test_a_noisy_app_does_not_slow_down_quiet_ones(
    tmp_path: Path, figures: Callable[[str], None], quiet_apps: int
) -> None:
    """T34: the noisy one always has more to do than the server can."""
    async with ClarionServer(tmp_path) as server, AsyncExitStack() as stack:
        apps = [server.create_app(f"com.example.quiet{n}") for n in range(quiet_apps)]
        noisy, *quiet = [AppClient(server, app) for app in (server.app, *apps)]
        for app in (noisy, *quiet):
            stack.callback(app.close)
        await noisy.set_up(SIZES.noisy_users)
        for app in quiet:
            await app.set_up(1)
        await use_quietly(quiet, WARM_UP_S)
        alone = await use_quietly(quiet, SIZES.noisy_phase_s / 2)
        is_over = asyncio.Event()
        noise = asyncio.ensure_future(be_noisy(noisy, is_over))
        beside = await use_quietly(quiet, SIZES.noisy_phase_s)
        is_over.set()
        sent = await noise
    figures(
        f"T34: {len(quiet)} quiet apps, {len(beside):,} events beside {sent:,} broadcasts to "
        f"{SIZES.noisy_users:,} users: {describe(beside)}, alone {describe(alone)}"
    )
    assert median(beside) <= SIZES.quiet_median_factor * median(alone) + SIZES.quiet_noise_s
    assert p99(beside) <= SIZES.quiet_p99_factor * p99(alone) + SIZES.quiet_noise_s


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
        with closing(AppClient(server, server.app)) as app:
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


async def overload(server: ClarionServer) -> tuple[float, Offer]:
    """Return what the server can do, and what it does if it is offered five times as much."""
    ceiling = (await offer(server, None, SIZES.overload_phase_s)).goodput
    over = await offer(server, ceiling * 5, SIZES.overload_phase_s, CLIENTS * 5)
    return ceiling, over


async def test_an_overloaded_server_does_as_much_as_before_and_recovers(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """T33: half, five times and again half of what the server can do."""
    phase_s = SIZES.overload_phase_s
    async with ClarionServer(tmp_path) as server, AsyncExitStack() as stack:
        server.is_flooded = True
        app = AppClient(server, server.app)
        stack.callback(app.close)
        await app.set_up(1)
        ceiling = (await offer(server, None, phase_s)).goodput
        before = await offer(server, ceiling / 2, phase_s)
        rounds = [await overload(server) for _ in range(SIZES.overload_rounds)]
        age_s = await oldest_s(server)
        began = time.monotonic()
        delivery_s = await app.time_delivery()
        after = await offer(server, ceiling / 2, phase_s)
        normal_s = time.monotonic() - began - after.took_s
    ratio = median(over.goodput / most for most, over in rounds)
    refused = [each for _, over in rounds for each in over.refused]
    refusal_s = p99(refused) if len(refused) > 1 else 0.0
    figures(
        f"T33: ceiling {ceiling:,.0f}/s; goodput at 0.5x {before.goodput:,.0f}/s, "
        f"at 5x {ratio:.2f} of the ceiling, at 0.5x again {after.goodput:,.0f}/s; "
        f"{len(refused):,} refused, p99 {refusal_s * 1000:.0f} ms; oldest job {age_s:.1f} s; "
        f"normal after {normal_s:.1f} s (the first event took {delivery_s:.2f} s)"
    )
    assert ratio >= 0.9 * SIZES.overload_goodput
    offers = (before, *(over for _, over in rounds), after)
    assert sum(each.without_retry_after for each in offers) == 0
    assert age_s < NORMAL_AGAIN_S
    assert normal_s < NORMAL_AGAIN_S
    assert after.goodput >= 0.8 * before.goodput
