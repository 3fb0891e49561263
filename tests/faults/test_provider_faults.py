"""T18: each fault of a provider, over each protocol, against a running server."""

import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from clarion.channels.breaker import LEAST_ATTEMPTS
from clarion.events.sending import UNKNOWN_LIMIT
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
from tests.faults.channels.peers import PEERS, RETRY_AFTER_S, Meets, SmsPeer
from tests.faults.sizes import SIZES
from tests.lanes import is_measured
from tests.peers.http1 import Http1Peer

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

MESSAGES = SIZES.provider_messages
IS_SHORT = MESSAGES <= USERS
LIMIT_S = 60.0 + MESSAGES / 5
# At night a few have no answer in time, twice: the third wait is 30 to 60 times the first.
WAITS = 1 if IS_SHORT else 65
# A retry comes at its time, unless the machine is busy with others.
LATE_S = 60.0
OPEN_S = 30.0
# In CI those that share a server, so that their waits are the same; else each has its own.
GROUPS: list[tuple[str, ...]] = [("apns", "fcm", "webpush"), ("smtp", "twilio", "webhook")]
if not IS_SHORT:
    GROUPS = [(kind,) for kind in PEERS]
# In CI only those that are tried again within seconds: email waits for a minute.
QUICK = [kind for kind in PEERS if PEERS[kind].first_wait_s < 10 or not IS_SHORT]
# The slots of a provider; how many messages wait for them, and how long it may hang.
SLOTS, HANGING, HANGS_S = 32, 128, 20
# If the machine is so slow that its attempts end before the others have arrived, once more.
TRIES = 3
ENDS = frozenset({"rejected", "gone"})
Run = Callable[[], Awaitable[None]]


async def meet(cell: Cell, fault: str) -> None:
    """Send messages to a provider that fails, until it is well again; check what became of each."""
    peer, meets = cell.peer, cell.peer.FAULTS[fault]
    await cell.set_up()
    try:
        await cell.warm_up()
        await peer.fail(meets)
        event_ids = await cell.send(1 if meets.status == "misconfigured" else MESSAGES)
        limit_s = LIMIT_S + WAITS * peer.first_wait_s
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
            check_waits(gaps_s(peer))
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
    if meets.status == "misconfigured" or cell.peer.kind not in QUICK:
        # What waits for another try is tried soon when its provider is changed.
        await cell.put_provider("main", cell.peer, daily_cap=1_000_000)


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


def check_waits(gaps: list[float]) -> None:
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


def show(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f} s" if times else "none"


def show_plan(kind: str) -> str:
    if kind not in QUICK:
        return "hastened by a change of the provider"
    return f"planned {PEERS[kind].first_wait_s:g} s and up to 10 % more"


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
        *first, last = ((each["provider"], each["status"]) for each in done[0]["attempts"])
        assert (set(first), last) == ({("main", meets.status)}, (took, peer.success)), done[0]
        # On a busy machine, one that may have it can be tried again before it is well.
        assert len(first) < (UNKNOWN_LIMIT if meets.status == "unknown" else 2), first
        assert {each["provider"] for each in done} == {took}
        assert len(count_ids(second)) == (0 if took == "main" else USERS), tried
    finally:
        await peer.stop()
        await second.stop()


async def open_and_close(world: World, kind: str) -> None:
    """Send to a provider that takes nothing, until it is left alone, and until it is well again."""
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
        await peer.heal(meets)
        late = await cell.wait(late_ids, is_final, LIMIT_S + OPEN_S)
        done = await cell.wait(event_ids, is_final, LIMIT_S + OPEN_S + peer.first_wait_s)
        assert {each["status"] for each in (*done, *late)} == {peer.success}
        await cell.wait_for_circuit("closed", LIMIT_S)
        # Those that came while it was open were not tried in vain.
        assert {each["attempt_count"] for each in late} == {1}
    finally:
        await peer.stop()


def list_cells(world: World, kind: str) -> tuple[dict[str, Cell], dict[str, Run]]:
    """Return the cells of the faults of a kind, and all that is run for it, by their names."""
    cells = {fault: world.make_cell(kind) for fault in PEERS[kind].FAULTS}
    runs: dict[str, Run] = {
        f"{kind} {fault}": partial(meet, cell, fault) for fault, cell in cells.items()
    }
    for fault in FALL_BACKS.get(kind, ()):
        runs[f"{kind} next after {fault}"] = partial(fall_back, world, kind, fault)
    if kind in QUICK:
        runs[f"{kind} circuit breaker"] = partial(open_and_close, world, kind)
    return cells, runs


# The subscription of a browser is for one key, and every webhook gets every message.
FALL_BACKS = {
    kind: [
        fault
        for fault in (not_taken(kind), "time-out before accepting", "time-out after accepting")
        if kind in QUICK or fault != "time-out after accepting"
    ]
    for kind in ("apns", "fcm", "smtp", "twilio")
}


@pytest.mark.parametrize("kinds", GROUPS, ids="-".join)
async def test_what_follows_each_fault(
    kinds: tuple[str, ...], tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """By the table of each kind; the next provider; the circuit breaker. Nothing is lost."""
    apps = sum(len(PEERS[kind].FAULTS) + 4 for kind in kinds)
    async with running(tmp_path, apps) as world:
        made = {kind: list_cells(world, kind) for kind in kinds}
        runs = [pair for _, each in made.values() for pair in each.items()]
        wrong = await run_all(runs)
    for kind, (cells, _) in made.items():
        waits, told = find_waits(cells)
        figures(
            f"{kind}: {len(cells)} faults, {MESSAGES} messages each; again after {show(waits)}, "
            f"{show_plan(kind)}; told {RETRY_AFTER_S} s: {show(told)}"
        )
        if not waits or max(waits) - min(waits) <= 0.01:
            wrong.append(f"{kind}: all came again after the same time")
    assert not wrong, "\n".join(wrong)


def find_waits(cells: Mapping[str, Cell]) -> tuple[list[float], list[float]]:
    """Return after how long messages came again: by the schedule, and as a provider asked."""
    waits = [
        gap
        for fault, cell in cells.items()
        for gap in gaps_s(cell.peer)
        # The HTTP client itself repeats at once what the peer says it did not look at.
        if fault != "429" and gap >= 1
    ]
    return waits, gaps_s(cells["429"].peer) if "429" in cells else []


class Round(NamedTuple):
    """How long messages took, alone and beside a provider that hangs."""

    alone: list[float]
    beside: list[float]


class Beside:
    """A webhook, and a provider of text messages of the same app that can hang."""

    def __init__(self, cell: Cell, hanging: Cell) -> None:
        self.cell = cell
        self.hanging = hanging
        self.peer = hanging.peer
        assert isinstance(self.peer, SmsPeer)
        assert isinstance(self.peer.http, Http1Peer)
        self.http = self.peer.http

    @classmethod
    async def set_up(cls, world: World) -> Self:
        cell, hanging = world.make_cell("webhook"), world.make_cell("twilio")
        await cell.set_up()
        hanging.app = cell.app
        await hanging.peer.start()
        await hanging.put_provider("main", hanging.peer, 201, timeout_s=HANGS_S, concurrency=SLOTS)
        await hanging.put_type("OTHER")
        await cell.demand(200, "PATCH", "/v1/users/u0", hanging.peer.user(0))
        allowed = {"types": {"OTHER": {"sms": True}}}
        await cell.demand(200, "PATCH", "/v1/users/u0/preferences", allowed)
        return cls(cell, hanging)

    async def stop(self) -> None:
        self.http.release()
        await self.cell.peer.stop()
        await self.peer.stop()

    async def measure(self) -> list[float]:
        """Return the seconds to the arrival of each message, one after another."""
        times = []
        for _ in range(SIZES.hanging_events):
            known, began = len(self.cell.peer.arrivals), time.monotonic()
            await self.cell.send(1)
            await until(lambda known=known: len(self.cell.peer.arrivals) > known, LIMIT_S)  # type: ignore[misc]
            times.append(self.cell.peer.arrivals[known].at - began)
        return times

    async def measure_beside(self) -> list[float]:
        """The same while the other provider hangs, and none of its slots becomes free."""
        for _ in range(TRIES):
            times, is_hanging = await self._measure_beside()
            if is_hanging:
                return times
        raise AssertionError("other messages arrive when slots of the provider are free again")

    async def _measure_beside(self) -> tuple[list[float], bool]:
        """Measure, and return whether all slots were in use the whole time."""
        self.http.hold()
        known = len(self.http.requests)
        event_ids = await self.hanging.send(HANGING, "OTHER")
        await until(lambda: self.http.count_held() >= SLOTS, LIMIT_S)
        try:
            times = await self.measure()
            is_hanging = self.http.count_held() == len(self.http.requests) - known == SLOTS
        finally:
            self.http.release()
            await self.hanging.wait(event_ids, is_final, LIMIT_S + OPEN_S)
        return times, is_hanging

    async def run(self, number: int) -> Round:
        """Measure both, in turn the one or the other first."""
        if number % 2:
            beside = await self.measure_beside()
            return Round(await self.measure(), beside)
        return Round(await self.measure(), await self.measure_beside())


def p99(times: Iterable[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def find_growth(each: Round) -> float:
    """Of the p99; in CI of the median, since the p99 would be the slowest of a few."""
    find = statistics.median if IS_SHORT else p99
    return find(each.beside) / find(each.alone)


@pytest.mark.watched
async def test_a_provider_that_hangs_does_not_delay_other_channels(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    """They arrive while all its slots are in use, and none becomes free."""
    async with running(tmp_path, 2) as world:
        beside = await Beside.set_up(world)
        try:
            await beside.measure()
            rounds = [await beside.run(number) for number in range(SIZES.hanging_rounds)]
        finally:
            await beside.stop()
    growth = statistics.median(map(find_growth, rounds))
    alone = [each for some in rounds for each in some.alone]
    hanging = [each for some in rounds for each in some.beside]
    figures(
        f"webhook beside an SMS provider that hangs, {len(alone):,} messages: p99 "
        f"{p99(alone) * 1000:.1f} to {p99(hanging) * 1000:.1f} ms, median "
        f"{statistics.median(alone) * 1000:.1f} to {statistics.median(hanging) * 1000:.1f} ms; "
        f"{growth:.2f}× in the median of {len(rounds)} rounds; load {os.getloadavg()[0]:.1f}"
    )
    assert growth <= SIZES.hanging_growth or not is_measured()
