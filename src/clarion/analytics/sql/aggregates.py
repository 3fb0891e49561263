"""The counts of minutes, hours and days in SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from clarion.analytics.model import (
    HOUR_MS,
    LABELS,
    AnalyticsQuery,
    Cell,
    Count,
    Dimension,
    Interval,
    Metric,
    RollupProgress,
)
from clarion.analytics.sql import counts
from clarion.analytics.tables import PROGRESS
from clarion.store.engine import Engine
from clarion.store.statement import Row, Unit, statement
from clarion.store.sweeps import sweep

_KEY = "app_id, metric, step, at, type, channel, platform, label"

START = statement(
    "start_analytics",
    """INSERT INTO analytics_progress (id, turn, counted_until, settled_until)
    VALUES (1, 0, :first, :first) ON CONFLICT (id) DO NOTHING""",
)
SELECT_PROGRESS = statement(
    "select_analytics_progress", f"SELECT {PROGRESS.columns} FROM analytics_progress WHERE id = 1"
)
MOVE = statement(
    "move_analytics_progress",
    """UPDATE analytics_progress SET turn = :turn, counted_until = :counted_until,
    settled_until = :settled_until WHERE id = 1 AND turn = :expected_turn RETURNING id""",
)
ADD = statement(
    "add_analytics",
    f"""INSERT INTO analytics ({_KEY}, value) VALUES (:app_id, :metric, :step, :at, :type,
    :channel, :platform, :label, :value) ON CONFLICT ({_KEY})
    DO UPDATE SET value = analytics.value + excluded.value""",
)
SELECT_MINUTE = statement(
    "select_analytics_of_minute",
    """SELECT app_id, metric, type, channel, platform, label, value FROM analytics
    WHERE step = 'minute' AND at = :at""",
)
READ = statement(
    "read_analytics",
    """SELECT at, by_type, by_channel, by_platform, by_label, SUM(value) FROM (
      SELECT at, value, CASE WHEN :has_type = 1 THEN type ELSE '' END AS by_type,
      CASE WHEN :has_channel = 1 THEN channel ELSE '' END AS by_channel,
      CASE WHEN :has_platform = 1 THEN platform ELSE '' END AS by_platform,
      CASE WHEN :has_label = 1 THEN label ELSE '' END AS by_label FROM analytics
      WHERE app_id = :app_id AND metric = :metric AND step = :step
      AND at >= :since AND at < :until AND (:type = '' OR type = :type)
      AND (:channel = '' OR channel = :channel) AND (:platform = '' OR platform = :platform)
    ) AS found GROUP BY at, by_type, by_channel, by_platform, by_label
    ORDER BY at, by_type, by_channel, by_platform, by_label LIMIT :limit""",
)
SELECT_OLD = statement(
    "select_old_analytics",
    f"""SELECT {_KEY.replace(" step,", "")} FROM analytics WHERE step = :step AND at < :before
    ORDER BY at LIMIT :limit""",
)
PRUNE = statement(
    "prune_analytics",
    """DELETE FROM analytics WHERE app_id = :app_id AND metric = :metric AND at = :at
    AND type = :type AND channel = :channel AND platform = :platform AND label = :label
    AND step = :step RETURNING 1""",
)


class RollupCounts:
    """Counts stored rows, and adds the counts to those of minutes, hours and days."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self, now: int) -> RollupProgress:
        """Return how far everything is counted; if nothing ever was, it begins an hour ago."""
        while (known := await _select_progress(self._engine)) is None:
            first = Interval.MINUTE.begin(max(now - HOUR_MS, 0))
            await self._engine.write(Unit("", (START.step(first=first),)))
        return known

    async def count(self, since: int, until: int) -> Mapping[Cell, int]:
        """Count what happened at or after a time and before another.

        Counting a time again can find more only if rows were committed in between. Erased rows are
        no longer counted.
        """
        return await counts.count_all(self._engine.fetch_in_background, since, until)

    async def read_minute(self, at: int) -> Mapping[Cell, int]:
        """Return the stored counts of a minute, for all apps."""
        rows = await self._engine.fetch_in_background(SELECT_MINUTE, at=at)
        return {Cell(app_id, Metric(name), *rest): value for app_id, name, *rest, value in rows}

    async def add(
        self,
        before: RollupProgress,
        after: RollupProgress,
        counts: Mapping[int, Mapping[Cell, int]],
    ) -> bool:
        """Add counts to those of the minutes that begin at these times, and of hours and days.

        The progress is stored in the same commit. False, and nothing is added, if it is not as it
        was `before`: another node has counted meanwhile.
        """
        move = MOVE.guard(**PROGRESS.values(after), expected_turn=before.turn)
        rows = _list_rows(counts)
        steps = (move, ADD.many(rows)) if rows else (move,)
        return await self._engine.write(Unit("", steps)) is not None


def _list_rows(counts: Mapping[int, Mapping[Cell, int]]) -> list[Row]:
    """Return the rows of minutes, hours and days, in the order of their keys."""
    totals: Counter[tuple[Cell, Interval, int]] = Counter()
    for minute, cells in counts.items():
        for cell, value in cells.items():
            for interval in Interval:
                totals[cell, interval, interval.begin(minute)] += value
    rows = []
    for (cell, interval, at), value in sorted(totals.items()):
        key = {**cell._asdict(), "metric": cell.metric.value, "step": interval.value}
        rows.append(ADD.bind(**key, at=at, value=value))
    return rows


class Analytics:
    """Reads counts. The cost depends on the range and the dimensions alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def read(self, query: AnalyticsQuery, limit: int) -> Sequence[Count]:
        """Return at most `limit` counts in the order of time, without those that are zero."""
        by = query.group_by
        rows = await self._engine.fetch_slowly(
            READ,
            app_id=query.app_id,
            metric=query.metric.value,
            step=query.interval.value,
            since=query.since,
            until=query.until,
            type=query.type,
            channel=query.channel,
            platform=query.platform,
            has_type=int(Dimension.TYPE in by),
            has_channel=int(Dimension.CHANNEL in by),
            has_platform=int(Dimension.PLATFORM in by),
            has_label=int(bool(by & LABELS)),
            limit=limit,
        )
        # PostgreSQL returns a sum as a decimal.
        return [Count(*row)._replace(value=int(row[-1])) for row in rows]

    async def get_progress(self) -> RollupProgress | None:
        """Return how far everything is counted; None if nothing ever was."""
        return await _select_progress(self._engine)

    async def prune(self, interval: Interval, before: int, limit: int) -> int:
        """Delete at most `limit` counts that begin before a time; return how many."""
        return await sweep(
            self._engine, SELECT_OLD, PRUNE, step=interval.value, before=before, limit=limit
        )


async def _select_progress(engine: Engine) -> RollupProgress | None:
    return PROGRESS.first(await engine.fetch(SELECT_PROGRESS))
