"""The checks of the chaos test themselves: whatever could go wrong must be found by them."""

import pytest

from tests.faults.gateway.devices import Arrival
from tests.faults.gateway.history import Record, find_faults, waiting_devices
from tests.faults.gateway.pushes import Lifetime, Push
from tests.replacing import replace

pytestmark = pytest.mark.core


def push(
    message_id: str, lifetime: Lifetime = Lifetime.KEPT, *, number: int = 1, device: int = 0
) -> Push:
    return Push(
        number=number,
        id=message_id,
        device=device,
        lifetime=lifetime,
        collapse_id="group" if lifetime is Lifetime.COLLAPSING else None,
    )


def record(message_id: str, status: str = "delivered", reason: str = "acknowledged") -> Record:
    return Record(id=message_id, status=status, reason=reason)


def faults(pushes: list[Push], records: list[Record], kept: list[Arrival]) -> list[str]:
    """The faults when all of these were accepted for device 0."""
    by_id = {push.id: push for push in pushes}
    return find_faults(by_id, set(by_id), {0: kept, 1: []}, {0: records, 1: []})


def test_what_arrived_and_is_recorded_is_no_fault() -> None:
    assert faults([push("a")], [record("a")], [("a", 1)]) == []


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        pytest.param([], [("a", 1)], id="not in the history"),
        pytest.param([record("a"), record("a")], [("a", 1)], id="twice in the history"),
        pytest.param([record("a")], [], id="delivered, and never kept"),
        pytest.param([record("a")], [("a", 2)], id="another payload"),
        pytest.param([record("a")], [("a", 1), ("b", 1)], id="an id that nobody sent"),
        pytest.param([record("a", "queued", "device_offline")], [("a", 1)], id="still waiting"),
        pytest.param([record("a", "expired", "overflow")], [], id="dropped"),
        pytest.param([record("a", "expired", "collapsed")], [], id="collapsed without cause"),
        pytest.param([record("a", "failed", "unregistered")], [], id="failed"),
    ],
)
def test_a_loss_is_found(records: list[Record], kept: list[Arrival]) -> None:
    assert len(faults([push("a")], records, kept)) >= 1


def test_a_message_on_the_wrong_device_is_found() -> None:
    stray = push("a", device=1)
    assert len(faults([stray], [record("a")], [("a", 1)])) == 1


def test_the_newest_of_a_group_is_not_collapsed() -> None:
    older, newer = push("a", Lifetime.COLLAPSING), push("b", Lifetime.COLLAPSING, number=2)
    gone = record("a", "expired", "collapsed")
    assert faults([older, newer], [record("b"), gone], [("b", 2)]) == []
    both_gone = [replace(gone, id="b"), gone]
    assert len(faults([older, newer], both_gone, [])) == 1


@pytest.mark.parametrize(
    ("lifetime", "reason"), [(Lifetime.ONE_SHOT, "not_stored"), (Lifetime.BRIEF, "ttl_passed")]
)
def test_what_may_expire_may_and_for_no_other_reason(lifetime: Lifetime, reason: str) -> None:
    assert faults([push("a", lifetime)], [record("a", "expired", reason)], []) == []
    assert len(faults([push("a", lifetime)], [record("a", "expired", "overflow")], [])) == 1


def test_a_device_is_waited_for_while_something_waits_that_must_arrive() -> None:
    pushes = {"a": push("a"), "b": push("b", Lifetime.ONE_SHOT)}
    waits = "pending", "device_offline"
    history = {0: [record("a", *waits)], 1: [record("b", *waits)], 2: [record("a")]}
    assert waiting_devices(history, pushes) == [0]
