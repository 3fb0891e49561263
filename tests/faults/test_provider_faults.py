"""T18: each fault of a provider, over each protocol, against a running server."""

import asyncio
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from clarion.channels.breaker import LEAST_ATTEMPTS
from tests.faults.channels.cells import (
    USERS,
    Cell,
    Delivery,
    World,
    count_ids,
    gaps_s,
    is_final,
    is_tried,
    run_all,
    running,
    until,
)
from tests.faults.channels.peers import PEERS, RETRY_AFTER_S, Meets
from tests.faults.sizes import SIZES
from tests.peers.http2 import Fault

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

MESSAGES = SIZES.provider_messages
LIMIT_S = 60.0 + MESSAGES / 5
# A retry comes at its time, unless the machine is busy with others.
LATE_S = 3.0
OPEN_S = 30.0
# How the delay of one channel by another is measured: in rounds, since the machine is shared.
ROUNDS, EVENTS, SLOTS = 3, 60, 32
# Ten per cent, and what a machine that is busy with others may add: what is delayed by a provider
# that hangs waits for seconds.
GROWTH, NOISE_S = 1.1, 0.25
# In CI only those that are tried again within seconds: email waits for a minute.
QUICK = [kind for kind in PEERS if PEERS[kind].first_wait_s < 10 or MESSAGES > USERS]
ENDS = frozenset({"rejected", "gone"})


async def meet(cell: Cell, fault: str) -> None:
    """Send messages to a provider that fails, until it is well again; check what became of each."""
    peer, meets = cell.peer, cell.peer.FAULTS[fault]
    await cell.set_up()
    try:
        await cell.warm_up()
        await peer.fail(meets)
        event_ids = await cell.send(1 if meets.status == "misconfigured" else MESSAGES)
        limit_s = LIMIT_S + peer.first_wait_s
        tried = await cell.wait(event_ids, is_tried, limit_s, min(len(event_ids), USERS))
        statuses = {each["attempts"][0]["status"] for each in tried}
        assert statuses <= {meets.status, meets.others or meets.status}, statuses
        assert meets.status in statuses, statuses
        before = count_ids(peer)
        if meets.status not in ENDS:
            await heal(cell, meets)
        done = await cell.wait(event_ids, is_final, limit_s + OPEN_S)
        check_end(cell, meets, done)
        if meets.status == "unknown":
            # Each that had arrived came again, with the same id.
            assert all(count_ids(peer)[id_] > 1 for id_ in before if id_ in seen_again(before))
        if fault == "429":
            check_told(gaps_s(peer))
        if meets.status == "gone":
            await check_gone(cell)
    finally:
        await peer.stop()


def seen_again(before: dict[str, int]) -> list[str]:
    """Return the ids but that of the first message, which was delivered before the fault."""
    return list(before)[1:]


async def heal(cell: Cell, meets: Meets) -> None:
    await cell.peer.heal(meets)
    if meets.status == "misconfigured":
        assert await cell.circuit() == "open"
        await cell.put_provider("main", cell.peer)


def check_end(cell: Cell, meets: Meets, done: list[Delivery]) -> None:
    peer = cell.peer
    statuses = {each["status"] for each in done}
    attempts = {each["attempt_count"] for each in done}
    distinct = len(count_ids(peer))
    if meets.status not in ENDS:
        assert statuses == {peer.success}, done[0]
        assert distinct == len(done) + 1, (distinct, len(done))
        least = 1 if meets.status == "delivered" or len(done) > USERS else 2
        assert min(attempts) >= least, done[0]
        assert {each["provider"] for each in done} == {"main"}
        return
    assert statuses <= {"failed", "dropped"}, done[0]
    refused = [each for each in done if each["status"] == "failed"]
    reasons = {"rejected"} if meets.status == "rejected" else {"address_gone"}
    assert {each["reason"] for each in refused} == reasons, refused[0]
    assert {each["attempt_count"] for each in refused} == {1}
    # Nothing is sent again.
    assert max(count_ids(peer).values()) == 1


def check_told(gaps: list[float]) -> None:
    assert gaps
    assert min(gaps) >= RETRY_AFTER_S - 0.05, gaps
    assert min(gaps) <= RETRY_AFTER_S + 1 + LATE_S, gaps
    if len(gaps) <= USERS:
        assert max(gaps) <= RETRY_AFTER_S + 1 + LATE_S, gaps


async def check_gone(cell: Cell) -> None:
    if cell.peer.channel == "push":
        items = (await cell.demand(200, "GET", "/v1/feedback?since=2020-01-01T00:00:00Z"))["items"]
        assert {each["reason"] for each in items} == {"uninstalled"}
        assert len(items) == min(USERS, MESSAGES)
    elif cell.peer.channel == "webhook":
        provider = await cell.demand(200, "GET", "/v1/providers/webhook/main")
        assert not provider["is_active"]
        assert "gone" in provider["disabled_reason"]


@pytest.mark.parametrize("kind", PEERS)
async def test_each_fault_is_followed_by_what_the_table_says(
    kind: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    faults = PEERS[kind].FAULTS
    async with running(tmp_path, len(faults)) as world:
        cells = {fault: world.make_cell(kind) for fault in faults}
        wrong = await run_all([(fault, partial(meet, cells[fault], fault)) for fault in faults])
    # The HTTP client itself repeats at once what the peer says it did not look at.
    waits = [
        gap
        for fault, cell in cells.items()
        for gap in gaps_s(cell.peer)
        if fault != "429" and gap >= 1
    ]
    told = gaps_s(cells["429"].peer) if "429" in cells else []
    figures(
        f"{kind}: {len(faults)} faults, {MESSAGES} messages each; again after {show(waits)}, "
        f"planned {PEERS[kind].first_wait_s:g} s and up to 10 % more; told {RETRY_AFTER_S} s: "
        f"{show(told)}"
    )
    assert not wrong, "\n".join(wrong)
    assert max(waits) - min(waits) > 0.01, "all came again after the same time"


def show(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f} s" if times else "none"


def not_taken(kind: str) -> str:
    """Return the fault that says of every message that it was not taken."""
    return "4xx" if kind == "smtp" else "5xx"


async def fall_back(world: World, kind: str, fault: str) -> None:
    """Send through two providers, of which the first fails."""
    cell, second = world.make_cell(kind), world.make_peer(kind)
    peer, meets = cell.peer, cell.peer.FAULTS[fault]
    await cell.set_up()
    await second.start()
    try:
        await cell.put_provider("second", second, 201, order=1)
        await cell.warm_up()
        await peer.fail(meets)
        event_ids = await cell.send(USERS)
        tried = await cell.wait(event_ids, is_tried, LIMIT_S)
        if meets.status == "unknown":
            assert second.arrivals == []
            await peer.heal(meets)
        done = await cell.wait(event_ids, is_final, LIMIT_S + peer.first_wait_s)
        took = "main" if meets.status == "unknown" else "second"
        made = [(each["provider"], each["status"]) for each in done[0]["attempts"]]
        assert made == [("main", meets.status), (took, peer.success)], made
        assert {each["provider"] for each in done} == {took}
        assert len(count_ids(second)) == (0 if took == "main" else USERS), tried
    finally:
        await peer.stop()
        await second.stop()


async def test_the_next_provider_takes_over_unless_the_first_may_have_it(tmp_path: Path) -> None:
    pairs = [
        (kind, fault)
        for kind in ("apns", "fcm", "smtp", "twilio")
        for fault in (not_taken(kind), "time-out before accepting", "time-out after accepting")
        if kind in QUICK or fault != "time-out after accepting"
    ]
    async with running(tmp_path, len(pairs)) as world:
        cells = [
            (f"{kind} {fault}", partial(fall_back, world, kind, fault)) for kind, fault in pairs
        ]
        wrong = await run_all(cells)
    assert not wrong, "\n".join(wrong)


async def open_and_close(world: World, kind: str) -> int:
    """Return how many messages a provider was asked to take that takes none."""
    cell = world.make_cell(kind)
    peer = cell.peer
    meets = peer.FAULTS[not_taken(kind)]
    await cell.set_up()
    try:
        await cell.warm_up()
        await peer.fail(meets)
        event_ids = await cell.send(2 * LEAST_ATTEMPTS)
        await cell.wait_for_circuit("open", LIMIT_S)
        late_ids = await cell.send(2 * LEAST_ATTEMPTS)
        asked = len(peer.arrivals) - 1
        await peer.heal(meets)
        late = await cell.wait(late_ids, is_final, LIMIT_S + OPEN_S)
        done = await cell.wait(event_ids, is_final, LIMIT_S + OPEN_S + peer.first_wait_s)
        assert {each["status"] for each in (*done, *late)} == {peer.success}
        await cell.wait_for_circuit("closed", LIMIT_S)
        # Those that came while it was open were not tried in vain.
        assert {each["attempt_count"] for each in late} == {1}
        return asked
    finally:
        await peer.stop()


async def test_the_circuit_breaker_opens_and_closes_and_nothing_is_lost(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    async with running(tmp_path, len(QUICK)) as world:
        results = await asyncio.gather(
            *(open_and_close(world, kind) for kind in QUICK), return_exceptions=True
        )
    by_kind = dict(zip(QUICK, results, strict=True))
    figures(f"circuit breaker: attempts of {2 * LEAST_ATTEMPTS} until it opened: {by_kind}")
    assert all(isinstance(each, int) for each in results), by_kind


async def measure(cell: Cell, events: int) -> list[float]:
    """Return the seconds from the request to the arrival of each message, one after another."""
    times: list[float] = []
    for _ in range(events):
        known, began = len(cell.peer.arrivals), time.monotonic()
        await cell.send(1)
        await until(lambda known=known: len(cell.peer.arrivals) > known, LIMIT_S)  # type: ignore[misc]
        times.append(cell.peer.arrivals[-1].at - began)
    return times


def p99(rounds: list[list[float]]) -> float:
    return statistics.median(statistics.quantiles(times, n=100)[98] for times in rounds)


async def set_up_hanging(world: World, beside: Cell) -> Cell:
    """Return a provider of text messages, of the same app, that takes messages in silence."""
    cell = world.make_cell("twilio")
    cell.app = beside.app
    await cell.peer.start()
    await cell.put_provider("main", cell.peer, 201)
    await cell.put_type("OTHER")
    await cell.demand(200, "PATCH", "/v1/users/u0", cell.peer.user(0))
    allowed = {"types": {"OTHER": {"sms": True}}}
    await cell.demand(200, "PATCH", "/v1/users/u0/preferences", allowed)
    cell.peer.set(Fault.SILENCE)
    return cell


async def measure_rounds(world: World) -> tuple[list[list[float]], list[list[float]]]:
    quiet: list[list[float]] = []
    beside: list[list[float]] = []
    cell = world.make_cell("webhook")
    await cell.set_up()
    hanging = await set_up_hanging(world, cell)
    try:
        await measure(cell, EVENTS)
        for number in range(1, ROUNDS + 1):
            # A provider that was changed has a circuit breaker that is closed.
            await hanging.put_provider("main", hanging.peer)
            quiet.append(await measure(cell, EVENTS))
            await hanging.send(SLOTS * 4, "OTHER")
            wanted = SLOTS * number
            await until(lambda n=wanted: len(hanging.peer.arrivals) >= n, LIMIT_S)  # type: ignore[misc]
            beside.append(await measure(cell, EVENTS))
    finally:
        await cell.peer.stop()
        await hanging.peer.stop()
    return quiet, beside


async def test_a_provider_that_hangs_does_not_delay_other_channels(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """Of the same app: the messages to the one that hangs fill all its slots."""
    async with running(tmp_path, 2) as world:
        quiet, beside = await measure_rounds(world)
    before, after = p99(quiet), p99(beside)
    medians = [statistics.median(map(statistics.median, each)) * 1000 for each in (quiet, beside)]
    figures(
        f"webhook beside an SMS provider that hangs: p99 {before * 1000:.1f} to "
        f"{after * 1000:.1f} ms ({after / before:.2f}×), median {medians[0]:.1f} to "
        f"{medians[1]:.1f} ms"
    )
    assert after <= before * GROWTH + NOISE_S
