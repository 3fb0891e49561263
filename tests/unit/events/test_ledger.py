"""What is lost is found, counted when it is found again, and forgotten when it is mended."""

from structlog.testing import capture_logs

from clarion.events.ledger import AGES_MS, LOST_LIMIT, MINUTE_MS, LedgerCheck

HOUR_MS = 60 * MINUTE_MS
NOW = 10 * 24 * HOUR_MS


class Rows:
    """The `Ledger` port on a dictionary: what is lost, and when it was made."""

    def __init__(self) -> None:
        self.lost: dict[str, int] = {}
        self.ranges: list[tuple[int, int]] = []

    async def find_lost(self, since: int, until: int, limit: int) -> frozenset[str]:
        self.ranges.append((since, until))
        found = [each for each, made_at in self.lost.items() if since <= made_at < until]
        return frozenset(found[:limit])

    async def is_lost(self, row_id: str) -> bool:
        return row_id in self.lost


async def test_a_lost_row_counts_when_it_is_found_again_until_it_is_mended() -> None:
    rows = Rows()
    check = LedgerCheck(rows)
    rows.lost["event"] = NOW - AGES_MS[0] - 1
    with capture_logs() as lines:
        differences = []
        for number in range(4):
            if number == 3:
                rows.lost.clear()
            await check.step(NOW + number)
            differences.append(check.difference)
    assert differences == [0, 1, 1, 0]
    assert [(line["event"], line["lost"]) for line in lines] == [("ledger_difference", ["event"])]
    assert check.checked == 4


async def test_a_row_that_was_written_meanwhile_never_counts() -> None:
    rows = Rows()
    check = LedgerCheck(rows)
    rows.lost["event"] = NOW - AGES_MS[0] - 1
    await check.step(NOW)
    rows.lost.clear()
    await check.step(NOW + 1)
    assert check.difference == 0


async def test_every_moment_is_checked_once_at_each_age() -> None:
    rows = Rows()
    check = LedgerCheck(rows)
    for now in (NOW, NOW + 10_000, NOW + 10_000, NOW + 20_000):
        await check.step(now)
    for age in AGES_MS:
        last = NOW - age
        mine = [each for each in rows.ranges if abs(each[1] - last) <= HOUR_MS // 2]
        assert mine == [
            (last - MINUTE_MS, last),
            (last, last + 10_000),
            (last + 10_000, last + 20_000),
        ]


async def test_a_pause_is_caught_up_with_a_minute_at_a_time_and_a_long_one_is_skipped() -> None:
    rows = Rows()
    check = LedgerCheck(rows)
    await check.step(NOW)
    rows.ranges.clear()
    await check.step(NOW + 24 * HOUR_MS)
    until = NOW + 24 * HOUR_MS - AGES_MS[0]
    assert rows.ranges[0] == (until - HOUR_MS, until - HOUR_MS + MINUTE_MS)


async def test_no_more_are_remembered_than_the_limit() -> None:
    rows = Rows()
    check = LedgerCheck(rows)
    for number in range(3):
        made_at = NOW - AGES_MS[0] + number * 10_000 - 1
        rows.lost |= {f"{number}/{each}": made_at for each in range(LOST_LIMIT)}
    for number in range(4):
        await check.step(NOW + number * 10_000)
    assert check.difference == LOST_LIMIT
