"""Sends the users of a file to a server in batches, and counts what became of them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from clarion.cli.user_files import Fault, UserLine
from clarion.client import ApiError, Clarion, FieldFault
from clarion.errors import CommandFailed

PATH = "/v1/users/batch"
USERS_AT_ONCE = 500
# Half of what a request may have by default.
BATCH_BYTES = 524_288
ATTEMPTS = 8
_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LONGEST_WAIT_S = 60.0
# More faults are counted, but neither kept nor shown.
FAULTS_LIMIT = 1_000


class _Result(msgspec.Struct):
    status: str
    detail: str = ""
    errors: list[FieldFault] = []


class _Results(msgspec.Struct):
    results: list[_Result]


@dataclass
class Summary:
    """What became of the users so far."""

    created: int = 0
    updated: int = 0
    refused: int = 0
    faults: list[Fault] = field(default_factory=list)
    # Everything before this line is stored or refused.
    next_line: int = 1

    def refuse(self, *faults: Fault) -> None:
        """Count a user who was refused."""
        self.refused += 1
        self.faults += faults[: FAULTS_LIMIT - len(self.faults)]


@dataclass(frozen=True, slots=True)
class UserImport:
    """Sends users to a server; `on_progress` is called after each batch."""

    client: Clarion
    summary: Summary
    on_progress: Callable[[], None]
    sleep: Callable[[float], None] = time.sleep

    def run(self, lines: Iterable[UserLine | Fault]) -> None:
        """Send everything; `CommandFailed` if the server cannot be reached or refuses all."""
        for batch in split(lines):
            users = [each for each in batch if isinstance(each, UserLine)]
            results = iter(self._send(users) if users else ())
            for each in batch:
                if isinstance(each, Fault):
                    self.summary.refuse(each)
                else:
                    self._count(each, next(results))
            self.summary.next_line = batch[-1].line + 1
            self.on_progress()

    def _count(self, each: UserLine, result: _Result) -> None:
        if result.status == "created":
            self.summary.created += 1
        elif result.status == "updated":
            self.summary.updated += 1
        else:
            faults = [Fault(each.line, fault.field, fault.reason) for fault in result.errors]
            self.summary.refuse(*(faults or [Fault(each.line, "", result.detail)]))

    def _send(self, users: list[UserLine]) -> list[_Result]:
        body = b'{"users":[' + b",".join(each.body for each in users) + b"]}"
        # A batch that is sent again gets the first response, so that it is counted as it was.
        key = uuid.uuid4().hex
        for attempt in range(ATTEMPTS):
            try:
                results = self.client.request(
                    "POST", PATH, msgspec.Raw(body), returns=_Results, idempotency_key=key
                ).results
                break
            except ApiError as error:
                if error.status not in _LATER or attempt == ATTEMPTS - 1:
                    raise
                wanted = 2.0**attempt if error.retry_after_s is None else error.retry_after_s
                self.sleep(min(max(wanted, 0.1), _LONGEST_WAIT_S))
        if len(results) != len(users):
            raise CommandFailed("The server did not answer for each user.")
        return results


def split(lines: Iterable[UserLine | Fault]) -> Iterator[list[UserLine | Fault]]:
    """Yield batches. A user who appears again is in a later one: a batch has each only once."""
    batch: list[UserLine | Fault] = []
    size, ids = 0, set[str | None]()
    for each in lines:
        length, user_id = (len(each.body), each.id) if isinstance(each, UserLine) else (0, None)
        is_repeated = user_id is not None and user_id in ids
        if batch and (len(batch) == USERS_AT_ONCE or size + length > BATCH_BYTES or is_repeated):
            yield batch
            batch, size, ids = [], 0, set()
        batch.append(each)
        size += length
        ids.add(user_id)
    if batch:
        yield batch
