"""A scenario for the storage faults: clients that make API keys through the real writer.

An operation is the unit of `POST /v1/keys`: the claim of an idempotency key, then the key. Its
name is the idempotency key and the label of the key, so that a unit that is half there shows.
Some operations repeat an earlier one (the guard refuses them) and some take an id that is taken
(the batch is run again, unit by unit); neither may leave a trace.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

import apsw

from clarion.access.sql import INSERT_KEY
from clarion.errors import Conflict
from clarion.idempotency import sql as idempotency
from clarion.idempotency.model import IdempotencyClaim
from clarion.store.batch import Done, Outcome, arrange
from clarion.store.group_commit import GroupCommit
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.checkpoints import Checkpoints
from clarion.store.sqlite.runner import SqliteRunner, open_connection
from clarion.store.statement import Unit
from tests.faults.power_loss import Operation, RecordingVfs

DATABASE = "clarion.db"
CLIENTS = 8


class Protection(TypedDict, total=False):
    """What a control takes away; what is not named is as the server has it."""

    synchronous: str


AS_SERVED: Protection = {}


def key_unit(
    name: str, *, key_id: str | None = None, claims: str | None = None, size_bytes: int = 300
) -> Unit:
    """The unit that makes a key; `key_id` and `claims` are the name unless they are taken ones."""
    once = IdempotencyClaim(
        app_id="app",
        key=claims or name,
        fingerprint=b"",
        answer=bytes(size_bytes),
        created_at=1,
        expires_at=2,
    )
    insert = INSERT_KEY.step(
        id=key_id or name,
        app_id="app",
        label=name,
        scopes="*",
        secret_hash=b"",
        created_at=1,
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
        replaced_by=None,
    )
    return Unit(name, (idempotency.claim(once), insert))


class InProcessRunner:
    """Runs batches here, where the disk is watched, and notes which units each one brought in."""

    def __init__(self, runner: SqliteRunner) -> None:
        self.batches: list[frozenset[str]] = []
        self.after_batch: Callable[[], None] = lambda: None
        self._runner = runner

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        # The callers of the batch before go first, so that they note when they were answered.
        await asyncio.sleep(0)
        outcomes = self._runner.run(arrange(units)).outcomes(units)
        pairs = zip(units, outcomes, strict=True)
        self.batches.append(frozenset(u.key for u, outcome in pairs if isinstance(outcome, Done)))
        self.after_batch()
        return outcomes


class Survivors(NamedTuple):
    """The names found in a database."""

    claims: frozenset[str]
    keys: frozenset[str]


def read_survivors(connection: apsw.Connection) -> Survivors:
    """Read what is there; a database that is not migrated yet holds nothing."""
    if not connection.table_exists(None, "api_keys"):
        return Survivors(frozenset(), frozenset())
    claims = connection.execute("SELECT key FROM idempotency_keys")
    keys = connection.execute("SELECT label FROM api_keys")
    return Survivors(frozenset(row[0] for row in claims), frozenset(row[0] for row in keys))


@dataclass(kw_only=True)
class Recording:
    """The operations on the disk, the batches, and when each unit was answered."""

    operations: list[Operation] = field(default_factory=list)
    batches: list[frozenset[str]] = field(default_factory=list)
    # The number of disk operations before the answer.
    answered: dict[str, int] = field(default_factory=dict)

    def find_faults(self, survivors: Survivors, moment: int) -> list[str]:
        """Return what a crash after `moment` operations must not have done to the units."""
        owed = {name for name, answered in self.answered.items() if answered <= moment}
        faults = [f"lost {name}" for name in sorted(owed - survivors.keys)]
        faults += [f"half there {name}" for name in sorted(survivors.claims ^ survivors.keys)]
        if not self._is_prefix(survivors.keys):
            faults.append("the survivors are no prefix of the batches")
        return faults

    def _is_prefix(self, survivors: frozenset[str]) -> bool:
        rest = survivors
        for batch in self.batches:
            if not batch <= rest:
                break
            rest -= batch
        return not rest


async def record(
    folder: Path,
    *,
    operations: int,
    seed: int,
    protection: Protection = AS_SERVED,
    copied_pages: int | None = None,
) -> Recording:
    """Run the scenario on a new database and record it.

    With `copied_pages` there are checkpoints beside the commits, after so many pages, as in the
    writer process; otherwise in the commits, as in a command that writes.
    """
    with RecordingVfs(f"recording-{folder}") as vfs:
        connection = open_connection(str(folder / DATABASE), vfs=vfs.name, **protection)
        apply_to_sqlite(connection)
        # Checkpoints, and the truncation of the WAL after them, are where a crash is hardest.
        connection.execute("PRAGMA wal_autocheckpoint=30").fetchall()
        connection.execute("PRAGMA journal_size_limit=65536").fetchall()
        runner = InProcessRunner(SqliteRunner(connection))
        recording = Recording(operations=vfs.operations, batches=runner.batches)
        if copied_pages is not None:
            beside = open_connection(str(folder / DATABASE), vfs=vfs.name, **protection)
            checkpoints = Checkpoints(
                connection, beside, copied_pages=copied_pages, long_pages=3 * copied_pages
            )
            runner.after_batch = checkpoints.shorten
        await _serve_clients(runner, recording, _plan(operations, seed))
        if copied_pages is not None:
            checkpoints.close()
        connection.close()
    return recording


def _plan(operations: int, seed: int) -> list[list[Unit]]:
    chance = random.Random(seed)
    plans: list[list[Unit]] = [[] for _ in range(CLIENTS)]
    for number in range(operations):
        plans[chance.randrange(CLIENTS)].append(_choose(number, chance))
    return plans


def _choose(number: int, chance: random.Random) -> Unit:
    name = f"{number}-" + "x" * chance.choice((0, 20, 200))
    match chance.randrange(20):
        case 0:
            return key_unit(f"repeats-{name}", claims="first")
        case 1:
            return key_unit(f"collides-{name}", key_id="first")
        case _:
            return key_unit(name)


async def _serve_clients(
    runner: InProcessRunner, recording: Recording, plans: list[list[Unit]]
) -> None:
    commit = GroupCommit(runner, waiting_limit=1000, batch_limit=1000)
    await _submit(commit, recording, [key_unit("first")])
    async with asyncio.TaskGroup() as clients:
        for units in plans:
            clients.create_task(_submit(commit, recording, units))
    await commit.close()


async def _submit(commit: GroupCommit, recording: Recording, units: list[Unit]) -> None:
    for unit in units:
        try:
            is_in = await commit.write(unit) is not None
        except Conflict:
            is_in = False
        if is_in:
            recording.answered[unit.key] = len(recording.operations)
