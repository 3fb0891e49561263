"""The roll-up without a store: what is missing, and what takes too long."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from clarion.analytics.model import MINUTE_MS, Cell, Metric, RollupProgress, find_bucket_bound
from clarion.analytics.rollup import LAG_MS, SHORTEST_MS, Rollup, find_missing
from clarion.analytics.sql.aggregates import RollupCounts
from clarion.errors import ReadTooSlow
from tests.factories import NOW

EVENTS = Cell("app", Metric.EVENTS, "comment")
IOS = Cell("app", Metric.MESSAGES, platform="ios", label="accepted")
UNKNOWN = IOS._replace(platform="")


@dataclass
class BusyCounts(RollupCounts):
    """An event a second, of which no more than `most` can be counted at once."""

    most: int
    progress: RollupProgress = field(default_factory=lambda: RollupProgress(0, NOW, NOW))
    added: list[Mapping[int, Mapping[Cell, int]]] = field(default_factory=list)

    async def start(self, now: int) -> RollupProgress:
        assert now >= NOW
        return self.progress

    async def count(self, since: int, until: int) -> Mapping[Cell, int]:
        if until - since > self.most * 1000:
            raise ReadTooSlow
        return {EVENTS: len(range(-(-since // 1000), -(-until // 1000)))}

    async def read_minute(self, at: int) -> Mapping[Cell, int]:
        assert at % MINUTE_MS == 0
        return {}

    async def add(
        self,
        before: RollupProgress,
        after: RollupProgress,
        counts: Mapping[int, Mapping[Cell, int]],
    ) -> bool:
        assert before == self.progress
        self.progress = after
        self.added.append(counts)
        return True


@pytest.mark.parametrize("most", [60, 59, 30, 7, 2])
async def test_what_takes_too_long_is_counted_in_halves(most: int) -> None:
    tally = BusyCounts(most)
    assert await Rollup(tally, 9).step(NOW + MINUTE_MS + LAG_MS) == 0
    assert tally.added == [{NOW: {EVENTS: 60}}]
    assert tally.progress.counted_until == NOW + MINUTE_MS


async def test_what_takes_too_long_even_in_a_second_is_an_error() -> None:
    with pytest.raises(ReadTooSlow):
        await Rollup(BusyCounts(0), 9).step(NOW + MINUTE_MS)
    assert SHORTEST_MS == 1_000


@pytest.mark.parametrize(
    ("found", "stored", "missing"),
    [
        ({}, {EVENTS: 3}, {}),
        ({EVENTS: 3}, {EVENTS: 3}, {}),
        ({EVENTS: 5}, {EVENTS: 3}, {EVENTS: 2}),
        ({EVENTS: 5}, {}, {EVENTS: 5}),
        ({IOS: 2, UNKNOWN: 1}, {IOS: 3}, {}),
        ({IOS: 2, UNKNOWN: 2}, {IOS: 3}, {UNKNOWN: 1}),
        ({UNKNOWN: 5}, {IOS: 3}, {UNKNOWN: 2}),
    ],
)
def test_what_is_missing(
    found: dict[Cell, int], stored: dict[Cell, int], missing: dict[Cell, int]
) -> None:
    assert find_missing(found, stored) == missing


@pytest.mark.parametrize(
    ("counts", "share", "bound"),
    [
        ({}, 0.5, None),
        ({"50": 1}, 0.99, 50),
        ({"50": 50, "1000": 50}, 0.5, 50),
        ({"50": 50, "1000": 50}, 0.51, 1000),
        ({"50": 94, "1000": 5, "longer": 1}, 0.95, 1000),
        ({"50": 94, "1000": 5, "longer": 1}, 0.999, None),
    ],
)
def test_a_percentile_is_the_bound_of_its_bucket(
    counts: dict[str, int], share: float, bound: int | None
) -> None:
    assert find_bucket_bound(counts, share) == bound
