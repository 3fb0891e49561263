"""Failed sign-ins in SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from clarion.store.engine import Engine
from clarion.store.statement import Step, Unit, statement

# The first lock; each further failure doubles it, up to the longest.
FIRST_LOCK_MS = 30_000
LONGEST_LOCK_MS = 15 * 60_000
# Failures are forgotten after this long without another one.
FORGOTTEN_MS = 60 * 60_000
# Doublings of the first lock before it is the longest.
_DOUBLINGS = (LONGEST_LOCK_MS // FIRST_LOCK_MS).bit_length()
_FAILURES = """(CASE WHEN sign_in_attempts.last_at <= :forgotten THEN 1
  ELSE sign_in_attempts.failures + 1 END)"""
# A lock that ends later than any can was made by a clock that was wrong.
_IS_FREE = f"""(sign_in_attempts.locked_until <= :now
  OR sign_in_attempts.locked_until > :now + {LONGEST_LOCK_MS})"""

TAKE = statement(
    "take_sign_in_attempt",
    f"""INSERT INTO sign_in_attempts (key, failures, last_at, locked_until)
    VALUES (:key, 1, :now, 0)
    ON CONFLICT (key) DO UPDATE SET
      failures = {_FAILURES},
      last_at = :now,
      locked_until = CASE
        WHEN {_FAILURES} < :threshold THEN 0
        WHEN {_FAILURES} >= :threshold + {_DOUBLINGS} THEN :now + {LONGEST_LOCK_MS}
        ELSE :now + {FIRST_LOCK_MS} * (1 << CAST({_FAILURES} - :threshold AS INTEGER)) END
    WHERE {_IS_FREE} RETURNING key""",
)
SELECT_LOCK = statement(
    "select_sign_in_lock",
    f"SELECT locked_until FROM sign_in_attempts WHERE key = :key AND NOT {_IS_FREE}",
)
TAKE_BACK = statement(
    "take_back_sign_in_attempt",
    """UPDATE sign_in_attempts SET failures = failures - 1, locked_until = 0
    WHERE key = :key AND failures > 0""",
)
DELETE = statement("delete_sign_in_attempts", "DELETE FROM sign_in_attempts WHERE key = :key")
FORGET = statement(
    "forget_sign_in_attempts", "DELETE FROM sign_in_attempts WHERE key LIKE :pattern"
)


class Counter(NamedTuple):
    """A key by which failed attempts are counted, and how many lead to a lock."""

    key: str
    threshold: int


class SignInAttempts:
    """Failed attempts to sign in. They are counted in the store: nothing resets them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def take(self, counters: Sequence[Counter], now: int) -> int | None:
        """Count an attempt as failed by every counter, before it is made.

        If one of them is locked, nothing is counted, and the time until which it is locked is
        returned. Counting first means that attempts at the same time cannot pass together.
        """
        guards = tuple(_take(counter, now) for counter in counters)
        if await self._engine.write(Unit(counters[0].key, guards, is_aside=True)):
            return None
        fetch = self._engine.fetch
        found = await asyncio.gather(
            *(fetch(SELECT_LOCK, key=counter.key, now=now) for counter in counters)
        )
        return max((row[0] for rows in found for row in rows), default=now)

    async def succeed(self, counters: Sequence[Counter]) -> None:
        """Take an attempt back that did not fail; the first counter starts at zero again."""
        first, *others = counters
        steps = [TAKE_BACK.step(key=counter.key) for counter in others]
        delete = DELETE.step(key=first.key)
        await self._engine.write(Unit(first.key, (delete, *steps), is_aside=True))

    async def take_back(self, counters: Sequence[Counter]) -> None:
        """Take an attempt back that could not be made, and the lock that it led to."""
        steps = tuple(TAKE_BACK.step(key=counter.key) for counter in counters)
        await self._engine.write(Unit(counters[0].key, steps, is_aside=True))

    async def forget(self, prefix: str) -> None:
        """Delete the counters whose key starts with a text."""
        await self._engine.write(Unit(prefix, (FORGET.step(pattern=f"{prefix}%"),)))


def _take(counter: Counter, now: int) -> Step:
    return TAKE.guard(
        key=counter.key, threshold=counter.threshold, now=now, forgotten=now - FORGOTTEN_MS
    )
