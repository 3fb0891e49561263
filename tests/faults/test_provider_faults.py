"""T18: each fault of a provider, over each protocol, against a running server."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.channels.cells import (
    USERS,
    Cell,
    Delivery,
    count_ids,
    gaps_s,
    is_final,
    is_tried,
    run_all,
    running,
)
from tests.faults.channels.peers import PEERS, RETRY_AFTER_S, Meets
from tests.faults.sizes import SIZES

pytestmark = [pytest.mark.fault, pytest.mark.timeout(SIZES.timeout_s)]

MESSAGES = SIZES.provider_messages
# A retry comes at its time, unless the machine is busy with others.
LATE_S = 3.0
OPEN_S = 30.0
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
        assert meets.status in statuses <= {meets.status, meets.others or meets.status}, statuses
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


LIMIT_S = 60.0 + MESSAGES / 5


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
    waits = [gap for fault, cell in cells.items() if fault != "429" for gap in gaps_s(cell.peer)]
    told = gaps_s(cells["429"].peer) if "429" in cells else []
    figures(
        f"{kind}: {len(faults)} faults, {MESSAGES} messages each; again after {show(waits)}, planned "
        f"{PEERS[kind].first_wait_s:g} s and up to 10 % more; told {RETRY_AFTER_S} s: {show(told)}"
    )
    assert not wrong, "\n".join(wrong)
    assert max(waits) - min(waits) > 0.01, "all came again after the same time"


def show(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f} s" if times else "none"
