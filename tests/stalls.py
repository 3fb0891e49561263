"""Whether a server blocks its event loop, by what it says in its log."""

import json
import os
from collections import Counter
from typing import Any

from tests.lanes import is_measured
from tests.stopwatch import UNIT_S, unit_s

# What a server of ours may do at one go. Only its own work counts: the machine may be busy with
# others.
LIMIT_MS = 50
# A virtual machine that is paused takes a moment from whatever runs, and counts it as its work. So
# one stall is a verdict only if it is long; a shorter one if it is seen again at the same place.
LONG = 4
_seen: Counter[str] = Counter()


def find_stalls(log: str) -> list[dict[str, Any]]:
    """Return the lines of a log of ours that show that the server blocks its loop.

    None while other tests run beside: then the times say nothing of the server.
    """
    if not is_measured():
        return []
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    unit_ms = LIMIT_MS * max(1.0, unit_s() / UNIT_S)
    stalls = [x for x in lines if x["event"] == "loop_stalled" and x["cpu_ms"] >= unit_ms]
    return [each for each in stalls if _is_again(each) or each["cpu_ms"] >= LONG * unit_ms]


def _is_again(stall: dict[str, Any]) -> bool:
    place = stall["place"]
    if place.startswith("unknown"):
        place = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0]
    _seen[place] += 1
    return _seen[place] > 1
