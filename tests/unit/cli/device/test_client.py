"""How long a device waits before it reconnects."""

import pytest

from clarion.cli.device.client import pause_s


@pytest.mark.parametrize(("attempt", "longest"), [(0, 0.5), (1, 1), (2, 2), (5, 16), (6, 30)])
def test_a_pause_doubles_up_to_30_seconds(attempt: int, longest: float) -> None:
    assert pause_s(attempt, 0.0) == longest


def test_jitter_shortens_a_pause_by_up_to_a_half() -> None:
    assert pause_s(3, 1.0) == pause_s(3, 0.0) / 2


def test_a_pause_never_exceeds_its_limit() -> None:
    assert pause_s(10_000, 0.0) == 30
