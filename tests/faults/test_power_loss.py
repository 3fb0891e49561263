"""T03, T04: power loss at every operation of the disk, under the real writer."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from tests.faults.power_loss import (
    Action,
    Disk,
    Image,
    Survival,
    digest_of,
    everything,
    nothing,
    torn,
    write_image,
)
from tests.faults.scenario import (
    AS_SERVED,
    DATABASE,
    Protection,
    Recording,
    Survivors,
    read_survivors,
    record,
)
from tests.faults.sizes import CRASH, SIZES

pytestmark = CRASH

SEED = 20_260_101
CRASHES_PER_RECORDING = 200

# Which crashes to try, by the number of operations before them.
Plan = Mapping[int, Sequence[Survival]]


@dataclass(kw_only=True)
class Tally:
    """What the crashes did."""

    crashes: int = 0
    owed: int = 0
    lost: int = 0
    corrupt: int = 0
    faults: list[str] = field(default_factory=list)

    def count(self, recording: Recording, moment: int, found: Survivors | str, where: str) -> None:
        owed = {name for name, answered in recording.answered.items() if answered <= moment}
        self.crashes += 1
        self.owed += len(owed)
        if isinstance(found, str):
            self.corrupt += 1
            self.faults.append(f"{where}: corrupt, {found}")
            return
        self.lost += len(owed - found.keys)
        self.faults += [f"{where}: {fault}" for fault in recording.find_faults(found, moment)]

    def __str__(self) -> str:
        rate = 100 * self.lost / self.owed
        return (
            f"{self.crashes:,} power losses, {self.lost:,} of {self.owed:,} acknowledged units "
            f"lost ({rate:.1f} %), {self.corrupt:,} databases corrupt"
        )


def examine(image: Image, folder: Path) -> Survivors | str:
    """Open what a crash left with plain SQLite; a text says what is wrong with the file."""
    write_image(image, folder)
    try:
        connection = apsw.Connection(str(folder / DATABASE))
        try:
            # Only to be quick: what is closed here is thrown away.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            verdict = str(connection.execute("PRAGMA integrity_check").get)
            return read_survivors(connection) if verdict == "ok" else verdict
        finally:
            connection.close()
    except apsw.Error as error:
        return str(error)


def crash(recording: Recording, plan: Plan, folder: Path, tally: Tally) -> None:
    """Replay a recording once and crash it as planned on the way.

    Files that an earlier crash left the same are not examined again.
    """
    disk = Disk()
    examined: dict[bytes, Survivors | str] = {}
    for moment, operation in enumerate([*recording.operations, None]):
        for survival in plan.get(moment, ()):
            image = disk.image(survival)
            if (digest := digest_of(image)) not in examined:
                examined[digest] = examine(image, folder / "crashed")
            found = examined[digest]
            tally.count(recording, moment, found, f"after operation {moment}, {survival.name}")
        if operation is not None:
            disk.play(operation)


def at_every_operation(recording: Recording) -> Plan:
    """A kill, a power loss, and torn power losses after each operation."""
    first = 0 if SIZES.loses_power_in_migrations else min(recording.answered.values())
    return {
        moment: [
            everything(),
            nothing(),
            *(torn(f"{moment}/{seed}") for seed in range(SIZES.torn_seeds)),
        ]
        for moment in range(first, len(recording.operations) + 1)
    }


def at_random(recording: Recording, crashes: int, seed: int) -> Plan:
    chance = random.Random(seed)
    plan: dict[int, list[Survival]] = {}
    for number in range(crashes):
        moment = chance.randint(0, len(recording.operations))
        plan.setdefault(moment, []).append(torn(f"{seed}/{number}"))
    return plan


async def crash_recordings(folder: Path, crashes: int, protection: Protection = AS_SERVED) -> Tally:
    """Crash at random, in a new recording every 200 crashes."""
    tally = Tally()
    for seed in range(SEED, SEED + -(-crashes // CRASHES_PER_RECORDING)):
        own_folder = folder / str(seed)
        own_folder.mkdir()
        recording = await record_one(own_folder, seed, protection)
        crash(recording, at_random(recording, CRASHES_PER_RECORDING, seed), folder, tally)
    return tally


async def record_one(folder: Path, seed: int, protection: Protection = AS_SERVED) -> Recording:
    return await record(
        folder, operations=SIZES.power_loss_operations, seed=seed, protection=protection
    )


async def test_nothing_is_lost_at_any_operation(
    scratch: Path, figures: Callable[[str], None]
) -> None:
    """T03: whatever the last operation was, what was answered is there, whole and in order."""
    tally, recording = Tally(), await record_one(scratch, SEED)
    crash(recording, at_every_operation(recording), scratch, tally)
    figures(f"T03 {len(recording.operations):,} operations: {tally}")
    assert tally.faults[:20] == []


async def test_nothing_is_lost_when_checkpoints_run_beside_the_commits(
    scratch: Path, figures: Callable[[str], None]
) -> None:
    """T03: the same while another connection copies from the log, as in the writer process."""
    operations = SIZES.power_loss_operations
    # So few that there are checkpoints even if the thread that copies is never awake in time.
    pages = operations // 7
    recording = await record(scratch, operations=operations, seed=SEED, copied_pages=pages)
    tally = Tally()
    crash(recording, at_random(recording, CRASHES_PER_RECORDING, SEED), scratch, tally)
    figures(f"T03 checkpoints beside commits: {tally}")
    assert tally.faults[:20] == []
    first, last = min(recording.answered.values()), max(recording.answered.values())
    meanwhile = recording.operations[first:last]
    assert any(each.file == DATABASE and each.action is Action.WRITE for each in meanwhile)


async def test_nothing_is_lost_at_random(scratch: Path, figures: Callable[[str], None]) -> None:
    """T03: the same with other scenarios and other sectors."""
    tally = await crash_recordings(scratch, SIZES.random_power_losses)
    figures(f"T03 random: {tally}")
    assert tally.faults[:20] == []


async def test_without_syncing_each_commit_work_is_lost(
    scratch: Path, figures: Callable[[str], None]
) -> None:
    """T04: the control; the same crashes must show losses if commits are not synced."""
    tally = await crash_recordings(scratch, SIZES.control_power_losses, {"synchronous": "NORMAL"})
    figures(f"T04 control, synchronous=NORMAL: {tally}")
    assert tally.lost > 0


async def test_without_any_sync_databases_break(
    scratch: Path, figures: Callable[[str], None]
) -> None:
    """T04: the second control; without syncs, torn checkpoints must show as corruption."""
    tally = await crash_recordings(scratch, SIZES.control_power_losses, {"synchronous": "OFF"})
    figures(f"T04 control, synchronous=OFF: {tally}")
    assert tally.corrupt > 0
