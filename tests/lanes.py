"""Which lane a test runs in.

`make test` is the lane `core`: no result there depends on how fast the machine is. `make test-all`
adds `rest`, and at last `timing`, whose tests measure and so run alone, one after another.
"""

from enum import StrEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Long tests, and those that need programs of the distribution.
REST_FOLDERS = frozenset({"browser", "clients", "docs", "faults", "ops"})


class Lane(StrEnum):
    CORE = "core"
    REST = "rest"
    TIMING = "timing"


def lane_of(item: pytest.Item) -> Lane:
    """Return the lane that the test is marked for, else that of its folder."""
    folder = item.path.relative_to(TESTS).parts[0]
    if folder == Lane.TIMING or item.get_closest_marker(Lane.TIMING):
        return Lane.TIMING
    if item.get_closest_marker(Lane.REST):
        return Lane.REST
    if item.get_closest_marker(Lane.CORE):
        return Lane.CORE
    return Lane.REST if folder in REST_FOLDERS else Lane.CORE


def keep_lane(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other lanes, if `--lane` names one."""
    lane = config.getoption("lane")
    if lane is None:
        return
    kept = [item for item in items if lane_of(item) == lane]
    config.hook.pytest_deselected(items=[item for item in items if lane_of(item) != lane])
    items[:] = kept
