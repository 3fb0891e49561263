"""The `Engine` contract: what a unit, a guard and a batch promise on every database."""

import asyncio
import random
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.errors import Conflict, Overloaded, StoreUnavailable
from clarion.store.engine import Engine
from clarion.store.opening import sqlite_path
from clarion.store.statement import Row, Step, Unit, Value, statement
from tests.contract.conftest import Reopen

MAKE = statement("make", "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)")
MAKE_VALUES = statement("make_values", "CREATE TABLE kept (t TEXT, i BIGINT, r FLOAT, b BYTEA)")
INSERT = statement("insert", "INSERT INTO things (id, n) VALUES (:id, :n)")
INSERT_BACK = statement("back", "INSERT INTO things (id, n) VALUES (:id, :n) RETURNING id, n")
CLAIM = statement(
    "claim", "INSERT INTO things (id, n) VALUES (:id, :n) ON CONFLICT (id) DO NOTHING RETURNING id"
)
# As above, for one who need not know what was claimed.
CLAIM_SILENTLY = statement(
    "claim_silently",
    """INSERT INTO things (id, n) VALUES (:id, :n) ON CONFLICT (id) DO NOTHING
    /*postgres RETURNING id */""",
)
ADD = statement("add", "UPDATE things SET n = n + :n WHERE id = :id RETURNING n, id")
DROP = statement("drop", "DELETE FROM things WHERE id = :id RETURNING n")
ALL = statement("all", "SELECT id, n FROM things ORDER BY id")
KEEP = statement(
    "keep", "INSERT INTO kept (t, i, r, b) VALUES (:t, :i, :r, :b) RETURNING t, i, r, b"
)
KEPT = statement("kept", "SELECT t, i, r, b FROM kept")
# How the connection that writes commits.
SQLITE_SYNC = statement(
    "sqlite_sync",
    "INSERT INTO things (id, n) SELECT synchronous, 0 FROM pragma_synchronous RETURNING id",
)
POSTGRES_SYNC = statement(
    "postgres_sync",
    "INSERT INTO things (id, n) SELECT current_setting('synchronous_commit'), 0 RETURNING id",
)

Outcome = tuple[tuple[Row, ...], ...] | BaseException | None


@pytest.fixture
async def engine(engine: Engine) -> Engine:
    await engine.write(unit(MAKE.step(), MAKE_VALUES.step()))
    return engine


def unit(*steps: Step, key: str = "") -> Unit:
    return Unit(key, steps)


def insert(name: str, n: int = 0) -> Step:
    return INSERT.step(id=name, n=n)


async def content(engine: Engine) -> dict[str, int]:
    return dict(await engine.fetch(ALL))


async def write_together(engine: Engine, *units: Unit) -> list[Outcome]:
    """Write units as one batch, and make sure that it was one."""
    before = engine.commit.batches
    outcomes = await asyncio.gather(*map(engine.write, units), return_exceptions=True)
    assert engine.commit.batches == before + 1
    return list(outcomes)


async def test_a_unit_is_there_when_its_write_returns(engine: Engine, reopen: Reopen) -> None:
    assert await engine.write(unit(insert("a", 1), insert("b", 2))) == ((), ())
    assert await content(engine) == {"a": 1, "b": 2}
    async with reopen() as other:
        assert await content(other) == {"a": 1, "b": 2}


async def test_a_commit_waits_for_the_disk(engine: Engine, database_url: str) -> None:
    """The settings alone: the tests that crash servers show what is lost with others."""
    query, durable = (SQLITE_SYNC, "2") if sqlite_path(database_url) else (POSTGRES_SYNC, "on")
    assert await engine.write(unit(query.step())) == (((durable,),),)
    await engine.write(unit(DROP.step(id=durable)))
    assert await engine.write_apart(unit(query.step())) == (((durable,),),)


async def test_a_unit_without_steps_is_done(engine: Engine) -> None:
    assert await engine.write(unit()) == ()


async def test_the_rows_of_each_step_come_back(engine: Engine) -> None:
    steps = (INSERT_BACK.step(id="a", n=1), insert("b"), ADD.step(id="a", n=2), DROP.step(id="z"))
    assert await engine.write(unit(*steps)) == ((("a", 1),), (), ((3, "a"),), ())


async def test_a_step_sees_what_the_steps_before_it_did(engine: Engine) -> None:
    rows = await engine.write(unit(insert("a", 1), ADD.step(id="a", n=1), DROP.step(id="a")))
    assert rows == ((), ((2, "a"),), ((2,),))


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_constraint_is_a_conflict_and_leaves_nothing(engine: Engine, place: int) -> None:
    await engine.write(unit(insert("taken", 7)))
    steps = [insert("a"), insert("b")]
    steps.insert(place, insert("taken"))
    with pytest.raises(Conflict):
        await engine.write(unit(*steps))
    assert await content(engine) == {"taken": 7}


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_unit_that_fails_fails_alone(engine: Engine, place: int) -> None:
    await engine.write(unit(insert("taken", 7)))
    units = [unit(*(insert(f"{u}{s}") for s in range(3)), key=f"{u}") for u in range(20)]
    bad = list(units[9].steps)
    bad[place] = insert("taken")
    outcomes = await write_together(engine, *units[:9], unit(*bad, key="9"), *units[10:])
    assert [type(outcome) for outcome in outcomes] == [tuple] * 9 + [Conflict] + [tuple] * 10
    names = {f"{u}{s}" for u in range(20) if u != 9 for s in range(3)}
    assert set(await content(engine)) == names | {"taken"}


@pytest.mark.parametrize("place", [0, 1])
async def test_all_units_of_a_batch_may_fail(engine: Engine, place: int) -> None:
    await engine.write(unit(insert("taken", 7)))
    both = [insert("a"), insert("taken")]
    outcomes = await write_together(engine, *[unit(both[place - 1], both[place])] * 5)
    assert [type(outcome) for outcome in outcomes] == [Conflict] * 5
    assert await content(engine) == {"taken": 7}


@pytest.mark.parametrize("row", [0, 1, 2])
async def test_a_row_of_many_that_fails_undoes_its_unit_alone(engine: Engine, row: int) -> None:
    rows = [INSERT.bind(id=f"m{i}", n=i) for i in range(3)]
    rows[row] = INSERT.bind(id="taken", n=0)
    await engine.write(unit(insert("taken", 7)))
    good, bad = INSERT.many([INSERT.bind(id="good", n=1)]), INSERT.many(rows)
    outcomes = await write_together(engine, unit(good), unit(bad), unit(insert("after", 2)))
    assert [type(outcome) for outcome in outcomes] == [tuple, Conflict, tuple]
    assert await content(engine) == {"taken": 7, "good": 1, "after": 2}


async def test_many_runs_a_statement_once_a_row_and_returns_their_rows(engine: Engine) -> None:
    rows = [INSERT_BACK.bind(id=f"{i:04}", n=i) for i in range(2_500)]
    assert await engine.write(unit(INSERT_BACK.many(rows))) == (tuple(rows),)
    assert len(await content(engine)) == 2_500


@pytest.mark.parametrize("each", [INSERT, INSERT_BACK], ids=["silent", "returning"])
async def test_many_of_no_rows_does_nothing(engine: Engine, each: Any) -> None:
    nothing = unit(each.many([]), insert("a"))
    assert await engine.write(nothing) == ((), ())
    assert await content(engine) == {"a": 0}


async def test_a_whole_batch_of_no_rows_does_nothing(engine: Engine) -> None:
    outcomes = await write_together(engine, *[unit(INSERT.many([]))] * 999, unit(insert("a")))
    assert outcomes == [((),)] * 1_000


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_guard_that_returns_no_row_undoes_its_unit(engine: Engine, place: int) -> None:
    await engine.write(unit(insert("taken", 7)))
    steps = [insert("a"), insert("b")]
    steps.insert(place, CLAIM.guard(id="taken", n=0))
    assert await engine.write(unit(*steps)) is None
    assert await content(engine) == {"taken": 7}


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_guard_refuses_its_own_unit_alone(engine: Engine, place: int) -> None:
    await engine.write(unit(insert("taken", 7)))
    units = []
    for u in range(10):
        steps = [insert(f"{u}a"), insert(f"{u}b")]
        steps.insert(place, CLAIM.guard(id="taken" if u == 4 else f"{u}c", n=0))
        units.append(unit(*steps, key=f"{u}"))
    outcomes = await write_together(engine, *units)
    assert [outcome is None for outcome in outcomes] == [u == 4 for u in range(10)]
    assert set(await content(engine)) == {f"{u}{s}" for u in range(10) if u != 4 for s in "abc"} | {
        "taken"
    }


@pytest.mark.parametrize("place", [0, 1])
async def test_a_guard_is_judged_by_what_it_changes(engine: Engine, place: int) -> None:
    """It need not return a row where that costs more; it refuses its own unit alone."""
    await engine.write(unit(insert("taken", 7)))
    names = ("a", "taken", "b", "taken", "c")
    units = []
    for number, name in enumerate(names):
        steps = [insert(f"with {number}")]
        steps.insert(place, CLAIM_SILENTLY.guard(id=name, n=0))
        units.append(unit(*steps, key=str(number)))
    outcomes = await write_together(engine, *units)
    assert [outcome is not None for outcome in outcomes] == [name != "taken" for name in names]
    claimed = {"taken": 7, "a": 0, "b": 0, "c": 0}
    assert await content(engine) == claimed | {"with 0": 0, "with 2": 0, "with 4": 0}


async def test_a_guard_that_returns_a_row_lets_its_unit_pass(engine: Engine) -> None:
    guarded = unit(CLAIM.guard(id="a", n=1), insert("b", 2))
    assert await engine.write(guarded) == ((("a",),), ())


async def test_without_a_guard_no_row_is_no_harm(engine: Engine) -> None:
    assert await engine.write(unit(CLAIM.step(id="a", n=1))) == ((("a",),),)
    assert await engine.write(unit(CLAIM.step(id="a", n=1), insert("b"))) == ((), ())


@pytest.mark.parametrize("place", [0, 1])
async def test_of_many_claims_in_one_batch_one_wins(engine: Engine, place: int) -> None:
    def claiming(u: int) -> Unit:
        steps = [CLAIM.guard(id="prize", n=u), insert(f"claimed by {u}")]
        return unit(steps[place], steps[1 - place], key=f"{u}")

    outcomes = await write_together(engine, *map(claiming, range(50)))
    (winner,) = [u for u, outcome in enumerate(outcomes) if outcome is not None]
    assert await content(engine) == {"prize": winner, f"claimed by {winner}": 0}


async def test_a_claim_lost_to_a_unit_that_fails_goes_to_the_next(engine: Engine) -> None:
    await engine.write(unit(insert("taken", 7)))
    fails = unit(CLAIM.guard(id="prize", n=1), insert("taken"), key="1")
    wins = unit(CLAIM.guard(id="prize", n=2), insert("fine"), key="2")
    outcomes = await write_together(engine, fails, wins)
    assert isinstance(outcomes[0], Conflict)
    assert outcomes[1] == ((("prize",),), ())
    assert await content(engine) == {"taken": 7, "prize": 2, "fine": 0}


# What no database can hold must not cost the units beside it their place.
LONG = "".join(random.Random(1).choices(string.ascii_letters, k=20_000))
POISON: dict[str, tuple[Value, Value]] = {
    "a lone surrogate": ("\ud800", 0),
    "a zero character": ("a\x00b", 0),
    "an endless key": (LONG, 0),
    "a number of 64 bits without a sign": ("poison", 2**63),
    "a number below 64 bits": ("poison", -(2**63) - 1),
    "a number beyond 64 bits": ("poison", 2**64),
    "nothing where something must be": ("poison", None),
    "a word for a number": ("poison", "many"),
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("values", POISON.values(), ids=list(POISON))
async def test_a_value_that_cannot_be_stored_harms_no_other_unit(
    engine: Engine, values: tuple[Value, Value], place: int
) -> None:
    poison = INSERT.step(id=values[0], n=values[1])
    steps = [poison, insert("beside")] if place == 0 else [insert("beside"), poison]
    outcomes = await write_together(engine, unit(insert("a")), unit(*steps), unit(insert("b")))
    assert [outcomes[0], outcomes[2]] == [((),), ((),)]
    stored = set(await content(engine))
    assert {"a", "b"} <= stored
    assert ("beside" in stored) is (not isinstance(outcomes[1], BaseException))
    await engine.write(unit(insert("still working")))


async def test_a_statement_that_cannot_run_fails_alone(engine: Engine) -> None:
    nonsense = statement("nonsense", "INSERT INTO nowhere (id) VALUES (:id)").step(id="x")
    outcomes = await write_together(engine, unit(insert("a")), unit(nonsense), unit(insert("b")))
    assert [type(outcome) for outcome in outcomes[::2]] == [tuple, tuple]
    assert isinstance(outcomes[1], Exception)
    assert await content(engine) == {"a": 0, "b": 0}


async def test_a_unit_of_a_hundred_steps_is_written(engine: Engine) -> None:
    rows = await engine.write(unit(*(insert(f"{i:03}", i) for i in range(100))))
    assert rows == ((),) * 100


async def test_more_units_than_one_batch_holds_are_all_written(engine: Engine) -> None:
    units = [unit(INSERT_BACK.step(id=f"{i:04}", n=i), key=f"{i % 7}") for i in range(2_345)]
    outcomes = await asyncio.gather(*map(engine.write, units))
    assert outcomes == [(((f"{i:04}", i),),) for i in range(2_345)]
    assert engine.commit.batches < 20


async def test_a_small_write_does_not_wait_behind_all_the_large_ones_of_another(
    engine: Engine,
) -> None:
    """By the order in which they are done: no time is measured."""
    done: list[str] = []

    async def write(each: Unit) -> None:
        await engine.write(each)
        done.append(each.owner or "")

    rows = [[INSERT.bind(id=f"{u}/{r}", n=r) for r in range(1_000)] for u in range(40)]
    flood = [Unit(f"{u}", (INSERT.many(rows[u]),), "noisy") for u in range(40)]
    await asyncio.gather(*map(write, [*flood, Unit("late", (insert("late"),), "quiet")]))
    assert done.index("quiet") <= 8
    assert engine.commit.batches > 10


@pytest.mark.parametrize("waiting_limit", [3])
async def test_what_comes_when_too_many_wait_is_refused_and_the_rest_is_kept(
    engine: Engine, waiting_limit: int
) -> None:
    units = [unit(insert(f"{i}")) for i in range(8)]
    outcomes = await asyncio.gather(*map(engine.write, units), return_exceptions=True)
    refused = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Overloaded)]
    assert refused == list(range(waiting_limit, 8))
    assert set(await content(engine)) == {"0", "1", "2"}
    await engine.write(unit(insert("later")))


async def test_closing_commits_what_waits(engine: Engine, reopen: Reopen) -> None:
    writes = [asyncio.create_task(engine.write(unit(insert(f"{i}")))) for i in range(1_500)]
    await asyncio.sleep(0)  # each task has handed its unit over now
    await engine.close()
    assert await asyncio.gather(*writes) == [((),)] * 1_500
    async with reopen() as other:
        assert len(await content(other)) == 1_500


async def test_after_closing_everything_is_unavailable(engine: Engine) -> None:
    await engine.close()
    with pytest.raises(StoreUnavailable):
        await engine.write(unit(insert("a")))
    with pytest.raises(StoreUnavailable):
        await engine.fetch(ALL)
    with pytest.raises(StoreUnavailable):
        await engine.check()


async def test_closing_twice_is_closing_once(engine: Engine) -> None:
    await engine.close()
    await engine.close()
    with pytest.raises(StoreUnavailable):
        await engine.check()


async def test_a_caller_that_goes_away_does_not_harm_the_batch(engine: Engine) -> None:
    writes = [asyncio.create_task(engine.write(unit(insert(f"{i}")))) for i in range(10)]
    await asyncio.sleep(0)
    writes[4].cancel()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(outcomes.pop(4), asyncio.CancelledError)
    assert outcomes == [((),)] * 9
    assert set(await content(engine)) == {f"{i}" for i in range(10) if i != 4}


async def test_an_open_database_answers(engine: Engine) -> None:
    (failure,) = await asyncio.gather(engine.check(), return_exceptions=True)
    assert failure is None


SEVERAL_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    t=st.none() | SEVERAL_TEXTS,
    i=st.none() | INTEGERS,
    r=st.none() | st.floats(allow_nan=False),
    b=st.none() | st.binary(),
)
async def test_values_come_back_as_they_were_given(
    engine: Engine, t: str | None, i: int | None, r: float | None, b: bytes | None
) -> None:
    clear = statement("clear_kept", "DELETE FROM kept").step()
    assert await engine.write(unit(clear, KEEP.step(t=t, i=i, r=r, b=b))) == ((), ((t, i, r, b),))
    assert list(await engine.fetch(KEPT)) == [(t, i, r, b)]
