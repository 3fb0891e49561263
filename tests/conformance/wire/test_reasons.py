"""The whole table of reasons: each fault alone, on a connection of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from clarion.push.apns.reasons import Reason
from tests.conformance.clients.http2 import Answer, Request
from tests.conformance.wire import faults
from tests.conformance.wire.faults import Fault
from tests.conformance.wire.prepared import (
    PreparedServer,
    broadcast,
    create,
    list_all,
    manage,
    push,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "apns.md"
# Not by one request alone, but by what came before it; each has a test of its own.
ELSEWHERE = {
    Reason.TOO_MANY_PROVIDER_TOKEN_UPDATES: "test_provider_tokens",
    Reason.UNRELATED_KEY_ID_IN_TOKEN: "test_provider_tokens",
    Reason.CANNOT_CREATE_CHANNEL_CONFIG: "test_limits",
    Reason.SERVICE_UNAVAILABLE: "test_limits",
    Reason.TOO_MANY_REQUESTS: "test_limits",
    Reason.SHUTDOWN: "test_restart",
}
# A fault of ours: no request may bring it about.
NEVER = {Reason.INTERNAL_SERVER_ERROR}

GOOD: dict[str, tuple[list[Fault], Callable[[PreparedServer], Request]]] = {
    "push": (faults.DEVICE, lambda prepared: push(prepared.provider, prepared.valid)),
    "broadcast": (
        faults.BROADCAST,
        lambda prepared: broadcast(prepared.provider, prepared.passing),
    ),
    "create": (faults.CREATE, lambda prepared: create(prepared.provider, 1)),
    "read": (faults.READ, lambda prepared: manage(prepared.provider, "GET", prepared.keeping)),
    "delete": (faults.READ, lambda prepared: manage(prepared.provider, "DELETE", prepared.keeping)),
    "list": (faults.LIST, lambda prepared: list_all(prepared.provider)),
}
CASES = [
    pytest.param(make, fault, id=f"{name} {fault}")
    for name, (table, make) in GOOD.items()
    for fault in table
]


def check_form(answer: Answer) -> None:
    """A refusal is HEADERS, then one DATA frame that ends the stream: APNs clients rely on it."""
    assert (len(answer.data_frames), answer.ended_by) == (1, "DATA")
    assert answer.headers["content-type"] == b"application/json"
    assert set(answer.json) == {"reason"} | ({"timestamp"} if answer.status == 410 else set())


@pytest.mark.parametrize(("make", "fault"), CASES)
async def test_a_request_with_one_fault_is_refused(
    prepared: PreparedServer, make: Callable[[PreparedServer], Request], fault: Fault
) -> None:
    answer = await prepared.ask(fault.alter(prepared, make(prepared)))
    assert answer.refusal == (fault.status, fault.reason)
    check_form(answer)


@pytest.mark.parametrize("name", [name for name in GOOD if name != "delete"])
async def test_without_a_fault_it_is_accepted(prepared: PreparedServer, name: str) -> None:
    """Else the table above would prove nothing."""
    answer = await prepared.ask(GOOD[name][1](prepared))
    assert answer.status == (201 if name == "create" else 200)


def test_every_reason_is_provoked() -> None:
    provoked = {fault.reason for table, _ in GOOD.values() for fault in table}
    assert provoked | set(ELSEWHERE) | NEVER == set(Reason)


def test_a_reason_has_one_status() -> None:
    for table, _ in GOOD.values():
        assert [fault.status for fault in table] == [fault.reason.status for fault in table]


def test_every_reason_is_in_the_reference() -> None:
    lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = {(cells[0].strip("| "), cells[1].strip("`")) for cells in lines if len(cells) == 3}
    assert {(str(reason.status), reason.value) for reason in Reason} <= listed
