"""Which lanes a test runs in.

`make test` is the lane `core`: no result there depends on how fast the machine is. `make test-all`
adds `rest`, and at last `timing`, whose tests measure and so run alone, one after another.
"""

import os
from enum import StrEnum
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Long tests, and those that need programs of the distribution.
REST_FOLDERS = frozenset({"browser", "clients", "docs", "faults", "ops"})
# Their tests run on several constellations, some of which are in other lanes.
ON_CONSTELLATIONS = frozenset({"clients", "e2e"})
# Tests that run again where it can be measured whether their server blocks its event loop.
WATCHED = "watched"
LANE = "CLARION_TEST_LANE"
HANGING_S = 100.0


class Lane(StrEnum):
    CORE = "core"
    REST = "rest"
    TIMING = "timing"


def enter_lane(lane: str | None) -> None:
    """Let modules know the lane that is run, before they are imported."""
    if lane is None:
        return
    os.environ[LANE] = lane
    if lane == Lane.CORE:
        os.environ.setdefault("CLARION_TEST_SIZE", "small")


def is_core() -> bool:
    return os.environ.get(LANE) == Lane.CORE


def is_measured() -> bool:
    """Whether nothing runs beside the test, so that times mean something."""
    return os.environ.get(LANE) == Lane.TIMING


def limit_s(promised_s: float) -> float:
    """Return the time that is promised, where it is measured; elsewhere one against hanging."""
    return promised_s if is_measured() else HANGING_S


def lanes_of(item: pytest.Item) -> set[Lane]:
    """Return the lanes that the test is marked for, else that of its folder."""
    folder = item.path.relative_to(TESTS).parts[0]
    marked = {lane for lane in Lane if item.get_closest_marker(lane)}
    if folder == Lane.TIMING or Lane.TIMING in marked:
        return {Lane.TIMING}
    if not marked:
        marked = {Lane.REST if folder in REST_FOLDERS else Lane.CORE}
    is_watched = folder == "conformance" or item.get_closest_marker(WATCHED)
    return marked | {Lane.TIMING} if is_watched else marked


@cache
def lanes_in(path: Path) -> set[Lane]:
    """Return the lanes that the tests of a file can be in, without importing it."""
    folder, text = path.relative_to(TESTS).parts[0], path.read_text(encoding="utf-8")
    lanes = {lane for lane in Lane if f"mark.{lane}" in text}
    lanes.add(Lane.REST if folder in REST_FOLDERS else Lane.CORE)
    if folder in ON_CONSTELLATIONS:
        lanes |= {Lane.REST, Lane.TIMING}
    if "CRASH" in text:
        lanes.add(Lane.CORE)
    if folder in {"conformance", Lane.TIMING} or WATCHED in text:
        lanes.add(Lane.TIMING)
    return lanes


def check_lanes(items: list[pytest.Item]) -> None:
    """Fail if a test is in a lane that would not have imported its file."""
    for item in items:
        if not lanes_of(item) <= lanes_in(item.path):
            raise pytest.UsageError(f"{item.nodeid}: `lanes_in` does not see its lane")


def keep_lane(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other lanes, if `--lane` names one."""
    lane = config.getoption("lane")
    if lane is None:
        check_lanes(items)
        return
    kept = [item for item in items if lane in lanes_of(item)]
    config.hook.pytest_deselected(items=[item for item in items if lane not in lanes_of(item)])
    items[:] = kept
