"""The books of a chaos test: what was accepted, what the devices have, what the history says."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.clarion_server import ClarionServer
from tests.faults.gateway.pushes import Kind, Push
from tests.faults.http_client import Connection

PAGE = 100
WAITING = ("pending", "queued")
DELIVERED = ("delivered", "acknowledged")
# How a push of a kind may end; what is not named here is a loss.
ENDS = {
    Kind.KEPT: {DELIVERED},
    Kind.COLLAPSING: {DELIVERED, ("expired", "collapsed")},
    Kind.ONE_SHOT: {DELIVERED, ("expired", "not_stored")},
    Kind.BRIEF: {DELIVERED, ("expired", "ttl_passed")},
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """A message as the history shows it."""

    id: str
    status: str
    reason: str | None
    collapse_id: str | None

    @property
    def end(self) -> tuple[str, str | None]:
        return self.status, self.reason


History = Mapping[int, Sequence[Record]]  # device → its messages, newest first


async def read_history(
    server: ClarionServer, device_ids: Sequence[str], devices: Sequence[int]
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
            Record(**{name: item[name] for name in ("id", "status", "reason", "collapse_id")})
            for item in answer.json["items"]
        ]
        after = answer.json["next"]
    return records


def waiting_devices(history: History, pushes: Mapping[str, Push]) -> list[int]:
    """Return the devices for which something waits that must not be given up."""
    patient = (Kind.KEPT, Kind.COLLAPSING)
    return [
        device
        for device, records in history.items()
        if any(r.status in WAITING and pushes[r.id].kind in patient for r in records)
    ]


def count_ends(history: History) -> Counter[str]:
    """Count what became of the messages, by status and reason."""
    return Counter(
        f"{record.status} ({record.reason})" for records in history.values() for record in records
    )


def find_faults(
    pushes: Mapping[str, Push],
    accepted: set[str],
    kept: Mapping[int, Mapping[str, int]],
    history: History,
) -> list[str]:
    """Say what is lost, made up, or recorded as what it was not; `kept` is id → payload."""
    return [
        *_find_unbalanced(accepted, history),
        *_find_strangers(pushes, kept),
        *(
            fault
            for device, records in history.items()
            for fault in _find_bad_ends(pushes, kept[device], records)
        ),
    ]


def _find_unbalanced(accepted: set[str], history: History) -> Iterator[str]:
    times = Counter(record.id for records in history.values() for record in records)
    for message_id in accepted | set(times):
        if (message_id in accepted, times[message_id]) != (True, 1):
            what = "was accepted" if message_id in accepted else "was not accepted"
            yield f"{message_id} {what} and is there {times[message_id]} times"


def _find_strangers(
    pushes: Mapping[str, Push], kept: Mapping[int, Mapping[str, int]]
) -> Iterator[str]:
    for device, numbers in kept.items():
        for message_id, number in numbers.items():
            push = pushes.get(message_id)
            if push is None or (push.device, push.number) != (device, number):
                yield f"device {device} got {message_id} with number {number}, meant as {push}"


def _find_bad_ends(
    pushes: Mapping[str, Push], kept: Mapping[str, int], records: Sequence[Record]
) -> Iterator[str]:
    newest: set[str] = set()
    for record in records:
        push = pushes[record.id]
        is_newest = record.collapse_id is None or record.collapse_id not in newest
        newest.update(filter(None, [record.collapse_id]))
        if record.end not in (ENDS[push.kind] if not _must_arrive(push, is_newest) else {DELIVERED}):
            yield f"{push.kind} {push.id} to device {push.device} ended as {record.end}"
        if record.end == DELIVERED and record.id not in kept:
            yield f"{push.id} counts as delivered, and device {push.device} has not got it"


def _must_arrive(push: Push, is_newest: bool) -> bool:  # noqa: FBT001 - of one caller
    return push.kind is Kind.COLLAPSING and is_newest
