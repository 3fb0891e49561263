"""The waits between attempts, of every channel."""

import pytest

from clarion.catalog.model import Channel
from clarion.events.schedules import SPREAD, WAITS_S, find_wait_s

HOURS_75_35_S = 75 * 3600 + 35 * 60


def test_every_channel_that_sends_has_a_schedule() -> None:
    assert set(WAITS_S) == set(Channel) - {Channel.IN_APP}


def test_a_webhook_is_tried_for_75_hours_and_35_minutes() -> None:
    assert sum(WAITS_S[Channel.WEBHOOK]) == HOURS_75_35_S + 5


@pytest.mark.parametrize("channel", WAITS_S)
def test_waits_are_spread_and_come_to_an_end(channel: Channel) -> None:
    waits = WAITS_S[channel]
    for tries, wait_s in enumerate(waits, 1):
        found = [find_wait_s(channel, tries) for _ in range(20)]
        assert all(f is not None and wait_s <= f <= wait_s * (1 + SPREAD) for f in found)
        assert len(set(found)) > 1
    assert find_wait_s(channel, len(waits) + 1) is None


def test_what_a_provider_asks_for_counts() -> None:
    found = find_wait_s(Channel.WEBHOOK, 1, 120.0)
    assert found is not None
    assert 120 <= found <= 121
    assert find_wait_s(Channel.STUB, 99, 120.0) is None
