"""What traces cost: events to the inbox with traces off, of one in a hundred events, and of all."""

import asyncio
from collections.abc import Iterator
from functools import partial

from bench.deployment import IN_FLIGHT, Deployment, on_sqlite
from bench.subjects.events import USERS, one, run, wait
from bench.subjects.writes import EMPTY
from bench.table import Row
from tests.collector import open_collector

EVENTS = 10_000
FIRST = 500
SAMPLED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}


def measure(seconds: float) -> Iterator[Row]:
    """Measure on SQLite: what is added is the same on both engines."""
    with open_collector() as collector:
        on = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}"}
        cases = {"traces off": {}, "one event in 100 traced": on | SAMPLED, "all traced": on}
        for name, env in cases.items():
            with on_sqlite(users=USERS, env=env) as deployment:
                yield _measure(deployment, name, seconds)


def _measure(deployment: Deployment, name: str, seconds: float) -> Row:
    result, cpu_s = deployment.measure_baseline(EMPTY, seconds)
    empty = Row.of("empty handler", result, cpu_s=cpu_s)
    source = partial(one, deployment.installation.api_headers())
    # The first few open what is opened at first use.
    deployment.measure(source, 30, total=FIRST, warm_up_s=0)
    asyncio.run(wait(deployment, FIRST))
    what = f"{EVENTS:,} events to the inbox, {name}"
    return run(deployment, what, source, 1, empty, IN_FLIGHT, total=EVENTS)
