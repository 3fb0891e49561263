"""How long a device waits before it comes back."""

import pytest

from clarion.cli.devices.reconnecting import pause_s


@pytest.mark.parametrize(("attempt", "longest"), [(0, 0.5), (1, 1), (2, 2), (5, 16), (6, 30)])
def test_a_pause_doubles_up_to_half_a_minute(attempt: int, longest: float) -> None:
    assert pause_s(attempt, 0.0) == longest


def test_chance_takes_up_to_a_half_so_that_not_all_come_at_once() -> None:
    assert pause_s(3, 1.0) == pause_s(3, 0.0) / 2


def test_a_pause_never_outgrows_its_limit() -> None:
    assert pause_s(10_000, 0.0) == 30
