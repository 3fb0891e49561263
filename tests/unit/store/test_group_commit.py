"""The writer: what waits goes together, and every caller gets the outcome of its own unit."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from clarion.errors import (
    ClarionError,
    Conflict,
    InternalError,
    Overloaded,
    StorageFull,
    StoreUnavailable,
)
from clarion.store.batch import Done, Failed, Outcome, Refused
from clarion.store.group_commit import (
    BATCH_BYTES,
    RESOLVED_AT_ONCE,
    WAITING_BYTES,
    GroupCommit,
    Rows,
)
from clarion.store.statement import Unit, statement


def done(key: str) -> Done:
    return Done((((key,),),))


class Ledger:
    """The `BatchRunner` port in memory: records the batches, and can be made to wait."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.outcomes: dict[str, Outcome] = {}
        self.trouble: Exception | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.is_running = asyncio.Event()

    async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
        self.is_running.set()
        await self.is_open.wait()
        if self.trouble:
            raise self.trouble
        self.batches.append([unit.key for unit in units])
        return [self.outcomes.get(unit.key, done(unit.key)) for unit in units]


@pytest.fixture
async def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def commit(ledger: Ledger) -> AsyncIterator[GroupCommit]:
    commit = GroupCommit(ledger, waiting_limit=4, batch_limit=3)
    yield commit
    ledger.is_open.set()
    await commit.close()


STORE = statement("store", "INSERT INTO texts (body) VALUES (:body)")


def unit(key: str, owner: str | None = None) -> Unit:
    return Unit(key, (), owner)


def large(key: str, size: int) -> Unit:
    return Unit(key, (STORE.step(body="x" * size),))


async def hold(commit: GroupCommit, ledger: Ledger) -> asyncio.Future[Rows | None]:
    """Write a unit whose commit does not end until the ledger is opened."""
    ledger.is_open.clear()
    ledger.is_running.clear()
    first = commit.write(unit("held"))
    await ledger.is_running.wait()
    return first


async def test_a_unit_is_resolved_with_its_rows(commit: GroupCommit) -> None:
    assert await commit.write(unit("a")) == done("a").rows


async def test_what_waits_together_is_committed_together(
    commit: GroupCommit, ledger: Ledger
) -> None:
    await asyncio.gather(*(commit.write(unit(key)) for key in "abc"))
    assert ledger.batches == [["a", "b", "c"]]


async def test_while_a_commit_is_under_way_the_next_batch_gathers(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    waiting = [commit.write(unit(key)) for key in "ab"]
    assert commit.waiting == 2
    ledger.is_open.set()
    await asyncio.gather(held, *waiting)
    assert ledger.batches == [["held"], ["a", "b"]]


async def test_a_batch_ends_at_its_limit_and_order_is_kept(
    commit: GroupCommit, ledger: Ledger
) -> None:
    await asyncio.gather(*(commit.write(unit(key)) for key in "abcd"))
    assert ledger.batches == [["a", "b", "c"], ["d"]]


async def test_a_batch_ends_when_it_is_large_enough(commit: GroupCommit, ledger: Ledger) -> None:
    await asyncio.gather(*(commit.write(large(key, BATCH_BYTES // 3)) for key in "abc"))
    assert ledger.batches == [["a", "b"], ["c"]]


async def test_a_batch_of_many_rows_ends_when_it_is_large_enough(
    commit: GroupCommit, ledger: Ledger
) -> None:
    rows = STORE.many([("x",)] * 3_000)
    await asyncio.gather(*(commit.write(Unit(key, (rows,))) for key in "ab"))
    assert ledger.batches == [["a"], ["b"]]


async def test_when_too_many_bytes_wait_a_unit_is_refused_at_once(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    waiting = [commit.write(large(key, WAITING_BYTES // 2 - 10_000)) for key in "ab"]
    assert commit.waiting_bytes <= WAITING_BYTES
    with pytest.raises(Overloaded):
        commit.write(large("c", 20_000))
    ledger.is_open.set()
    await asyncio.gather(held, *waiting)
    assert (commit.waiting_bytes, commit.refused) == (0, 1)


async def test_one_app_cannot_fill_the_queue_for_the_others(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    waiting = [commit.write(unit(key, "noisy")) for key in "ab"]
    with pytest.raises(Overloaded):
        commit.write(unit("c", "noisy"))
    waiting.append(commit.write(unit("d", "quiet")))
    ledger.is_open.set()
    await asyncio.gather(held, *waiting)
    assert sorted(ledger.batches[1]) == ["a", "b", "d"]


async def test_beyond_the_limit_a_unit_is_refused_at_once(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    waiting = [commit.write(unit(key)) for key in "abcd"]
    with pytest.raises(Overloaded):
        commit.write(unit("e"))
    ledger.is_open.set()
    await asyncio.gather(held, *waiting)
    assert "e" not in [key for batch in ledger.batches for key in batch]
    assert commit.refused == 1


async def test_the_counts_are_those_of_what_was_done(commit: GroupCommit) -> None:
    await asyncio.gather(*(commit.write(unit(key)) for key in "abcd"))
    assert (commit.units, commit.batches, commit.waiting) == (4, 2, 0)


async def test_each_caller_gets_the_outcome_of_its_own_unit(
    commit: GroupCommit, ledger: Ledger
) -> None:
    ledger.outcomes = {
        "refused": Refused(0),
        "taken": Failed(constraint=True, message="x"),
        "bad": Failed(constraint=False, message="DataError"),
    }
    writes = [commit.write(unit(key)) for key in ("refused", "taken", "bad", "fine")]
    refused, taken, bad, fine = await asyncio.gather(*writes, return_exceptions=True)
    assert refused is None
    assert isinstance(taken, Conflict)
    assert isinstance(bad, InternalError)
    assert fine == done("fine").rows


@pytest.mark.parametrize("trouble", [StoreUnavailable(), StorageFull()], ids=lambda e: e.code)
async def test_a_batch_that_fails_fails_all_its_callers_alike(
    commit: GroupCommit, ledger: Ledger, trouble: ClarionError
) -> None:
    ledger.trouble = trouble
    outcomes = await asyncio.gather(
        *(commit.write(unit(key)) for key in "abc"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(trouble)] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3


async def test_an_unexpected_error_fails_all_callers_without_values_in_its_text(
    commit: GroupCommit, ledger: Ledger
) -> None:
    ledger.trouble = RuntimeError("the password is hunter2")
    with pytest.raises(InternalError) as raised:
        await commit.write(unit("a"))
    assert raised.value.detail == "RuntimeError in the writer"
    assert raised.value.__cause__ is ledger.trouble


async def test_after_a_failed_batch_the_writer_goes_on(commit: GroupCommit, ledger: Ledger) -> None:
    ledger.trouble = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await commit.write(unit("a"))
    ledger.trouble = None
    assert await commit.write(unit("b")) == done("b").rows


async def test_a_runner_that_loses_an_outcome_leaves_no_caller_waiting() -> None:
    class Forgetful(Ledger):
        async def run(self, units: Sequence[Unit]) -> Sequence[Outcome]:
            return (await super().run(units))[:-1]

    forgetful = GroupCommit(Forgetful(), waiting_limit=4, batch_limit=3)
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(
            *(forgetful.write(unit(key)) for key in "ab"), return_exceptions=True
        )
        await forgetful.close()
    assert isinstance(outcomes[1], InternalError)


async def test_the_unit_of_a_caller_that_went_away_is_not_written(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    gone, stays = commit.write(unit("gone")), commit.write(unit("stays"))
    gone.cancel()
    ledger.is_open.set()
    assert await stays == done("stays").rows
    assert await held
    assert ledger.batches[1] == ["stays"]


async def test_a_batch_of_which_all_callers_went_away_is_none(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    commit.write(unit("gone")).cancel()
    ledger.is_open.set()
    assert await held
    assert await commit.write(unit("next")) == done("next").rows
    assert ledger.batches[1:] == [["next"]]


async def test_a_caller_that_goes_away_while_its_batch_runs_is_passed_over(
    commit: GroupCommit, ledger: Ledger
) -> None:
    held = await hold(commit, ledger)
    held.cancel()
    ledger.is_open.set()
    assert await commit.write(unit("next")) == done("next").rows


async def test_a_caller_that_went_away_is_passed_over_by_a_failure_too(
    commit: GroupCommit, ledger: Ledger
) -> None:
    gone, stays = commit.write(unit("gone")), commit.write(unit("stays"))
    gone.cancel()
    ledger.trouble = StoreUnavailable()
    with pytest.raises(StoreUnavailable):
        await stays


@pytest.mark.parametrize("trouble", [None, StoreUnavailable()], ids=["committed", "failed"])
async def test_the_callers_of_a_large_batch_go_on_a_few_at_a_time(
    ledger: Ledger, trouble: ClarionError | None
) -> None:
    """Each caller answers a request then: a thousand in one turn would block the loop."""
    commit = GroupCommit(ledger, waiting_limit=1_000, batch_limit=1_000)
    ledger.trouble = trouble
    done = 0

    async def write(number: int) -> None:
        nonlocal done
        await asyncio.gather(commit.write(unit(f"{number}")), return_exceptions=True)
        done += 1

    writes = [asyncio.create_task(write(number)) for number in range(1_000)]
    seen, most = 0, 0
    while done < len(writes):
        await asyncio.sleep(0)
        seen, most = done, max(most, done - seen)
    assert most <= RESOLVED_AT_ONCE
    assert len(ledger.batches) <= 1
    await commit.close()


async def test_units_are_refused_while_a_commit_takes_too_long(
    ledger: Ledger,
) -> None:
    commit = GroupCommit(ledger, waiting_limit=4, batch_limit=3, commit_limit_s=0.0)
    held = await hold(commit, ledger)
    while not commit.is_stuck:  # noqa: ASYNC110 - a timer sets it, without a signal
        await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        commit.write(unit("behind"))
    ledger.is_open.set()
    await held
    assert not commit.is_stuck
    assert await commit.write(unit("later")) == done("later").rows
    await commit.close()


async def test_closing_commits_what_waits(commit: GroupCommit, ledger: Ledger) -> None:
    writes = [commit.write(unit(key)) for key in "abcd"]
    await commit.close()
    assert all(write.done() for write in writes)
    assert ledger.batches == [["a", "b", "c"], ["d"]]


async def test_after_closing_nothing_is_taken(commit: GroupCommit) -> None:
    await commit.close()
    with pytest.raises(StoreUnavailable):
        commit.write(unit("a"))


async def test_closing_again_does_nothing(commit: GroupCommit, ledger: Ledger) -> None:
    write = commit.write(unit("a"))
    await commit.close()
    await commit.close()
    assert write.done()
    assert ledger.batches == [["a"]]
