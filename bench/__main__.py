"""`make bench`: starts the real server as a process, drives it from others, prints the table."""

import argparse
import resource
import sys
from collections.abc import Callable, Iterable

from bench.subjects import (
    accept,
    broadcast,
    bus,
    channels,
    connections,
    dashboard,
    directory,
    events,
    fan_out,
    inbox,
    nodes,
    offline,
    online,
    processes,
    segments,
    start,
    traces,
    writes,
)
from bench.table import Row, json_lines, line, text

SUBJECTS: dict[str, Callable[[float], Iterable[Row]]] = {
    "writes": writes.measure,
    "events": events.measure,
    "inbox": inbox.measure,
    "directory": directory.measure,
    "dashboard": dashboard.measure,
    "offline": offline.measure,
    "accept": accept.measure,
    "processes": processes.measure,
    "online": online.measure,
    "nodes": nodes.measure,
    "connections": connections.measure,
    "broadcast": broadcast.measure,
    "fan_out": fan_out.measure,
    "channels": channels.measure,
    "segments": segments.measure,
    "bus": bus.measure,
    "start": start.measure,
    "traces": traces.measure,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=5, help="how long each row is measured (default: 5)"
    )
    parser.add_argument("--only", choices=SUBJECTS, help="measure this subject alone")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    options = parser.parse_args()
    allow_many_files()
    chosen = [options.only] if options.only else SUBJECTS
    rows = []
    for row in (row for name in chosen for row in SUBJECTS[name](options.seconds)):
        # All subjects take an hour: who stops early keeps what was measured.
        print(line(row), file=sys.stderr, flush=True)
        rows.append(row)
    print(json_lines(rows) if options.json else text(rows))
    return 0


def allow_many_files() -> None:
    """Let us and our children open as many connections as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    sys.exit(main())
