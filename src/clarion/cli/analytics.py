"""`clarion analytics`: a table of what happened, through the API of a running server."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from clarion.analytics.model import Interval, Metric
from clarion.cli.flags import SettingFlags, Switch
from clarion.cli.printing import print_json, print_rows
from clarion.cli.remote_server import ApiOptions, connect_api
from clarion.clock import SystemClock, to_rfc3339

_SHOWN = 24
_NO_GROUP = "total"


class _Point(msgspec.Struct):
    at: str
    value: int


class _Series(msgspec.Struct):
    group: dict[str, str]
    total: int
    percentiles: dict[str, int | None] | None
    points: list[_Point]


class _Report(msgspec.Struct):
    complete_until: str | None
    series: list[_Series]


def analytics(
    metric: Metric = Metric.DELIVERIES,
    /,
    *,
    interval: Interval = Interval.HOUR,
    by: str = "",
    last: Annotated[int, Parameter(validator=Number(gte=1, lte=2_000))] = _SHOWN,
    json: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Print how often something happened in the last minutes, hours or days.

    Parameters
    ----------
    metric
        What is counted.
    interval
        The length of each row: minute, hour or day.
    by
        Group the counts by these fields, like channel,outcome.
    last
        How many minutes, hours or days.
    json
        Print the answer of the API as JSON.

    """
    now = SystemClock().now()
    since = to_rfc3339(interval.begin(now) - (last - 1) * interval.length_ms)
    query = {"metric": metric.value, "interval": interval.value, "from": since, "group_by": by}
    path = f"/v1/analytics?{urlencode(query)}"
    with connect_api(server, settings) as client:
        found = client.request("GET", path, returns=dict[str, object])
    if json:
        print_json(found)
    else:
        _print_table(msgspec.convert(found, _Report))


def _print_table(report: _Report) -> None:
    names = [" ".join(each.group.values()) or _NO_GROUP for each in report.series]
    points = [{point.at: point.value for point in each.points} for each in report.series]
    rows = [["time (UTC)", *names]]
    rows += (
        [at[:16].replace("T", " "), *(str(each.get(at, 0)) for each in points)]
        for at in sorted({at for each in points for at in each})
    )
    rows.append(["total", *(str(each.total) for each in report.series)])
    for share in ("p50", "p95", "p99"):
        known = [each.percentiles for each in report.series if each.percentiles]
        if known:
            rows.append([f"{share} ms", *(str(each[share] or "> 3600000") for each in known)])
    print_rows(rows)
    print(f"Complete until {report.complete_until or 'now: nothing was counted yet'}.")
