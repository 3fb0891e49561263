"""Changes of many old rows in small steps: found first, then changed one by one.

In a single statement PostgreSQL may join the whole table with the few rows that were found.
"""

from __future__ import annotations

from clarion.store.engine import Engine
from clarion.store.statement import Statement, Step, Unit, Value


async def sweep(engine: Engine, find: Statement, change: Statement, **values: Value) -> int:
    """Find rows and change each; return how many were changed.

    `find` selects the other parameters of `change`, in their order. `change`
    checks its condition again and returns a row if it held.
    """
    found = await engine.fetch_in_background(find, **values)
    keys = [name for name in change.names if name not in values]
    given = {name: values[name] for name in change.names if name in values}
    # In key order, as every batch is written.
    rows = [change.bind(**dict(zip(keys, row, strict=True)), **given) for row in sorted(found)]
    return await count_changed(engine, "", change.many(rows)) if rows else 0


async def count_changed(engine: Engine, unit_key: str, step: Step) -> int:
    """Commit a step that returns a row for each one that it changed; return how many."""
    done = await engine.write(Unit(unit_key, (step,)))
    return len(done[0]) if done else 0
