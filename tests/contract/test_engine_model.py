"""The `Engine` contract against a model: a plain dictionary, one unit after the other."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.errors import Conflict
from clarion.store.engine import Engine
from clarion.store.statement import Row, Step, Unit, statement

MAKE = statement("make", "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)")
CLEAR = statement("clear", "DELETE FROM things")
ALL = statement("all", "SELECT id, n FROM things")
INSERT = statement("insert", "INSERT INTO things (id, n) VALUES (:id, :n)")
INSERT_BACK = statement("back", "INSERT INTO things (id, n) VALUES (:id, :n) RETURNING id, n")
CLAIM = statement(
    "claim", "INSERT INTO things (id, n) VALUES (:id, :n) ON CONFLICT (id) DO NOTHING RETURNING id"
)
ADD = statement("add", "UPDATE things SET n = n + :n WHERE id = :id RETURNING n, id")
DROP = statement("drop", "DELETE FROM things WHERE id = :id AND n <> :n RETURNING n")
STATEMENTS = {
    "insert": INSERT.step,
    "insert_back": INSERT_BACK.step,
    "claim": CLAIM.step,
    "claim_guard": CLAIM.guard,
    "add": ADD.step,
    "add_guard": ADD.guard,
    "drop": DROP.step,
    "drop_guard": DROP.guard,
}

# What to do, to which of the unit's own things, with which number.
Act = tuple[str, int, int]
ACTS = st.tuples(st.sampled_from(sorted(STATEMENTS)), st.integers(0, 2), st.integers(-2, 2))
UNITS = st.lists(st.lists(ACTS, min_size=1, max_size=5), min_size=1, max_size=60)
Model = dict[str, int]
Expected = tuple[tuple[Row, ...], ...] | type[Conflict] | None


@pytest.fixture
async def engine(engine: Engine) -> Engine:
    await engine.write(Unit("", (MAKE.step(),)))
    return engine


# Units in flight may not rely on each other, so each has things of its own; over two rounds it
# meets what it left. Every example clears the table first.
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(UNITS, min_size=1, max_size=2))
async def test_every_unit_of_a_mixed_batch_gets_its_own_rows(
    engine: Engine, rounds: list[list[list[Act]]]
) -> None:
    await engine.write(Unit("", (CLEAR.step(),)))
    model: Model = {}
    for plans in rounds:
        expected = [run_plan(model, plan, owner) for owner, plan in enumerate(plans)]
        assert await write_all(engine, plans) == expected
    assert dict(await engine.fetch(ALL)) == model


async def write_all(engine: Engine, plans: list[list[Act]]) -> list[Expected]:
    units = [Unit(f"{o * 37 % 11}", tuple(step(a, o) for a in p)) for o, p in enumerate(plans)]
    outcomes = await asyncio.gather(*map(engine.write, units), return_exceptions=True)
    return [type(each) if isinstance(each, BaseException) else each for each in outcomes]  # type: ignore[misc]


def step(act: Act, owner: int) -> Step:
    what, thing, n = act
    return STATEMENTS[what](id=f"{owner}:{thing}", n=n)


def run_plan(model: Model, plan: list[Act], owner: int) -> Expected:
    """Run a unit on the model: whole, or not at all."""
    draft, rows = dict(model), []
    for what, thing, n in plan:
        name = f"{owner}:{thing}"
        if what.startswith("insert") and name in draft:
            return Conflict
        rows.append(act_on(draft, what, name, n))
        if what.endswith("guard") and not rows[-1]:
            return None
    model.clear()
    model.update(draft)
    return tuple(rows)


def act_on(draft: Model, what: str, name: str, n: int) -> tuple[Row, ...]:
    """Do to the model what the statement does to the table."""
    match what.partition("_")[0], draft.get(name):
        case "insert", None:
            draft[name] = n
            return ((name, n),) if what == "insert_back" else ()
        case "claim", None:
            draft[name] = n
            return ((name,),)
        case "add", int(old):
            draft[name] = old + n
            return ((old + n, name),)
        case "drop", int(old) if old != n:
            del draft[name]
            return ((old,),)
        case _:
            return ()
