"""The loop of the audit log: what it links and appends, and the faults that it reports."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from clarion.audit.chain import ChainKeys
from clarion.audit.log_file import LogFile, read_entries
from clarion.audit.loop import AuditLoop
from clarion.audit.model import Act, ActorKind, AuditResult
from clarion.audit.sql import AuditLog
from clarion.store.statement import Unit, statement
from tests.factories import FixedClock
from tests.replacing import replace
from tests.unit.conftest import MemoryEngine

KEYS = ChainKeys(("00000000", bytes(32)))
ACT = Act(action="key.create", actor_kind=ActorKind.COMMAND, actor_id="root")


@pytest.fixture
def log(engine: MemoryEngine, clock: FixedClock) -> AuditLog:
    return AuditLog(engine, KEYS, clock, "node")  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "audit.log")


async def write(log: AuditLog, count: int) -> None:
    for _ in range(count):
        await log.write(ACT, AuditResult.DONE)


async def change(engine: MemoryEngine, sql: str) -> None:
    await engine.write(Unit("", (statement("attack", sql).step(),)))


def sequences(file: LogFile) -> list[int | None]:
    return [entry.sequence if entry else None for _, entry in read_entries(file.path)]


async def test_what_waits_is_linked_and_appended(log: AuditLog, file: LogFile) -> None:
    await write(log, 3)
    await AuditLoop(log, file).run_once()
    assert sequences(file) == [1, 2, 3]
    assert await log.chain.read_waiting("", 9) == ()


async def test_a_new_process_appends_what_is_missing(log: AuditLog, file: LogFile) -> None:
    await write(log, 2)
    await AuditLoop(log, file).run_once()
    await write(log, 2)
    await AuditLoop(log, file).run_once()
    assert sequences(file) == [1, 2, 3, 4]


async def test_without_a_file_entries_are_linked_all_the_same(log: AuditLog) -> None:
    await write(log, 1)
    await AuditLoop(log, None).run_once()
    assert (await log.chain.get_state()).sequence == 1


@pytest.mark.parametrize(
    ("attack", "count", "fault"),
    [
        (
            (
                "UPDATE audit_chain SET sequence = 1, link ="
                " (SELECT link FROM audit_entries WHERE sequence = 1)"
            ),
            0,
            "entries after 1 are in the file, but not in the store",
        ),
        (
            "UPDATE audit_chain SET link = (SELECT link FROM audit_entries WHERE sequence = 1)",
            1,
            "entry 3 does not follow the last one in the file",
        ),
    ],
)
async def test_a_store_that_does_not_go_on_from_the_file_is_reported(
    engine: MemoryEngine, log: AuditLog, file: LogFile, attack: str, count: int, fault: str
) -> None:
    loop = AuditLoop(log, file)
    await write(log, 2)
    await loop.run_once()
    await change(engine, attack)
    await write(log, count)
    with capture_logs() as logs:
        for _ in range(2):  # it is found again each second
            await loop.run_once()
            loop.report()
    assert [each["fault"] for each in logs] == [fault]


async def test_a_pruned_chain_is_no_fault(log: AuditLog, file: LogFile) -> None:
    loop = AuditLoop(log, file)
    await write(log, 2)
    await log.link_waiting()
    await log.prune(10**15, 9)
    await write(log, 1)
    with capture_logs() as logs:
        await loop.run_once()
        loop.report()
    assert logs == []
    assert sequences(file) == [3]


async def test_the_end_of_an_act_is_recorded_with_what_became_known(log: AuditLog) -> None:
    with log.record(lambda: replace(ACT, actor_kind=ActorKind.NOBODY, actor_id="")) as recording:
        log.identify(ActorKind.ADMINISTRATOR, "admin-1")
        log.describe(app_id="app", administrator_id="admin-1")
        await recording.finish(AuditResult.DENIED, "sign_in_failed")
    log.describe(app_id="nothing")  # no act is recorded now
    await log.link_waiting()
    (entry,) = await log.chain.read(0, 9)
    assert (entry.actor_kind, entry.actor_id) == (ActorKind.ADMINISTRATOR, "admin-1")
    assert (entry.app_id, entry.target) == ("app", {"administrator_id": "admin-1"})
