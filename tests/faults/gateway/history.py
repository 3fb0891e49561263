"""Compares what was accepted, what the devices have received and what the history says."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.gateway.devices import Arrival
from tests.faults.gateway.pushes import Lifetime, Push
from tests.faults.http_client import Connection
from tests.faults.pipeline_load import Served

PAGE = 100
WAITING = ("pending", "queued")
DELIVERED = ("delivered", "acknowledged")
# How a push may end; what is not named here is a loss.
ENDS = {
    Lifetime.KEPT: {DELIVERED},
    Lifetime.COLLAPSING: {DELIVERED, ("expired", "collapsed")},
    Lifetime.ONE_SHOT: {DELIVERED, ("expired", "not_stored")},
    # Its life can be over before it is accepted.
    Lifetime.BRIEF: {DELIVERED, ("expired", "ttl_passed"), ("expired", "not_stored")},
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A message as the history shows it."""

    id: str
    status: str
    reason: str | None


History = Mapping[int, Sequence[Record]]  # device → its messages, newest first


async def read_history(
    server: Served, device_ids: Sequence[str], devices: Sequence[int]
) -> dict[int, list[Record]]:
    """Read over HTTP what the server says of the messages to these devices."""
    history: dict[int, list[Record]] = {}
    async with Connection(server.port) as connection:
        for device in devices:
            history[device] = await _read_device(connection, server.api_key, device_ids[device])
    return history


async def _read_device(connection: Connection, api_key: str, device_id: str) -> list[Record]:
    records: list[Record] = []
    headers = {"authorization": f"Bearer {api_key}"}
    after: str | None = ""
    while after is not None:
        path = f"/v1/devices/{device_id}/messages?limit={PAGE}"
        answer = await connection.ask("GET", path + (f"&after={after}" if after else ""), headers)
        assert answer.status == 200, answer
        records += [
            Record(id=item["id"], status=item["status"], reason=item["reason"])
            for item in answer.json["items"]
        ]
        after = answer.json["next"]
    return records


def waiting_devices(history: History, pushes: Mapping[str, Push]) -> list[int]:
    """Return the devices for which a message waits that must be delivered."""
    patient = (Lifetime.KEPT, Lifetime.COLLAPSING)
    return [
        device
        for device, records in history.items()
        if any(r.status in WAITING and pushes[r.id].lifetime in patient for r in records)
    ]


def count_ends(history: History) -> Counter[str]:
    """Count what became of the messages, by status and reason."""
    return Counter(
        f"{record.status} ({record.reason})" for records in history.values() for record in records
    )


def find_faults(
    pushes: Mapping[str, Push],
    accepted: set[str],
    kept: Mapping[int, Collection[Arrival]],
    history: History,
) -> list[str]:
    """Return what is lost, invented, or recorded wrongly."""
    faults = [*_find_miscounted(accepted, history), *_find_unexpected(pushes, kept)]
    for device, records in history.items():
        faults += _find_bad_ends(pushes, records)
        faults += _find_undelivered(records, {message_id for message_id, _ in kept[device]})
    return faults


def _find_miscounted(accepted: set[str], history: History) -> Iterator[str]:
    times = Counter(record.id for records in history.values() for record in records)
    for message_id in accepted | set(times):
        if (message_id in accepted, times[message_id]) != (True, 1):
            what = "was accepted" if message_id in accepted else "was not accepted"
            yield f"{message_id} {what} and is there {times[message_id]} times"


def _find_unexpected(
    pushes: Mapping[str, Push], kept: Mapping[int, Collection[Arrival]]
) -> Iterator[str]:
    for device, arrivals in kept.items():
        for message_id, number in arrivals:
            push = pushes.get(message_id)
            if push is None or (push.device, push.number) != (device, number):
                yield f"device {device} got {message_id} with number {number}, meant as {push}"


def _find_bad_ends(pushes: Mapping[str, Push], records: Sequence[Record]) -> Iterator[str]:
    """Check that each message ended in a permitted way; nothing replaces the newest."""
    replaced: set[str] = set()
    for record in records:
        push = pushes[record.id]
        ends = ENDS[push.lifetime]
        if push.collapse_id is not None and push.collapse_id not in replaced:
            replaced.add(push.collapse_id)
            ends = {DELIVERED}
        if (record.status, record.reason) not in ends:
            yield f"{push} ended as {record.status} ({record.reason})"


def _find_undelivered(records: Sequence[Record], kept: set[str]) -> Iterator[str]:
    for record in records:
        if record.status == "delivered" and record.id not in kept:
            yield f"{record.id} counts as delivered, but its device does not have it"
