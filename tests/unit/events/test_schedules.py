"""The waits between attempts, of every channel."""

import pytest

from clarion.catalog.model import Channel
from clarion.events.schedules import SPREAD, WAITS_S, find_wait_s, find_wait_untried_s

HOURS_75_35_S = 75 * 3600 + 35 * 60


def test_every_channel_that_sends_has_a_schedule() -> None:
    assert set(WAITS_S) == set(Channel) - {Channel.IN_APP}


def test_a_webhook_is_tried_for_75_hours_and_35_minutes() -> None:
    assert sum(WAITS_S[Channel.WEBHOOK]) == HOURS_75_35_S + 5


@pytest.mark.parametrize("channel", WAITS_S)
def test_waits_are_spread_and_come_to_an_end(channel: Channel) -> None:
    waits, elapsed_s = WAITS_S[channel], 0.0
    for tries, wait_s in enumerate(waits, 1):
        found = [find_wait_s(channel, tries, elapsed_s) for _ in range(20)]
        assert all(f is not None and wait_s <= f <= wait_s * (1 + SPREAD) for f in found)
        assert len(set(found)) > 1
        elapsed_s += wait_s
    assert find_wait_s(channel, len(waits) + 1, elapsed_s) is None


def test_what_a_provider_asks_for_counts() -> None:
    found = find_wait_s(Channel.WEBHOOK, 1, 0, 120.0)
    assert found is not None
    assert 120 <= found <= 121
    assert find_wait_s(Channel.STUB, 99, 999, 120.0) is None


@pytest.mark.parametrize("channel", WAITS_S)
def test_short_times_that_a_provider_asks_for_do_not_shorten_the_schedule(channel: Channel) -> None:
    elapsed_s, tries = 0.0, 1
    while (wait_s := find_wait_s(channel, tries, elapsed_s, retry_after_s=0.0)) is not None:
        elapsed_s, tries = elapsed_s + wait_s, tries + 1
    assert elapsed_s >= sum(WAITS_S[channel])
    assert tries <= 2 * len(WAITS_S[channel]) + 1


def test_a_clock_that_stands_still_does_not_make_the_schedule_endless() -> None:
    tries = 2 * len(WAITS_S[Channel.PUSH])
    assert find_wait_s(Channel.PUSH, tries, 0.0) is not None
    assert find_wait_s(Channel.PUSH, tries + 1, 0.0) is None


def test_what_was_not_tried_is_looked_at_less_often_the_longer_it_waits() -> None:
    early = [find_wait_untried_s(Channel.EMAIL, 10, 20.0) for _ in range(100)]
    late = [find_wait_untried_s(Channel.EMAIL, 3600, 20.0) for _ in range(100)]
    assert all(each is not None and 20 <= each <= 21 for each in early)
    assert all(each is not None and 20 <= each <= 301 for each in late)
    assert max(each or 0 for each in late) > 200
    assert find_wait_untried_s(Channel.EMAIL, sum(WAITS_S[Channel.EMAIL]), 20.0) is None
