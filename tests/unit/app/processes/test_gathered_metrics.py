"""The metrics of several processes in one answer."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from clarion.app.processes.gathered_metrics import GatheredMetrics, merge
from clarion.nodes.local_bus import LocalBus

TEXT = """\
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{route="/a b",status="200"} 3.0
requests_total{route="x{y}",status="404"} 1.0
# HELP waiting Waiting.
# TYPE waiting gauge
waiting 7.0
"""


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = parse(text.decode())
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value
        for family in families
        for each in family.samples
    }


def test_each_sample_has_the_number_of_its_process() -> None:
    read = samples(merge({2: TEXT, 1: TEXT.replace("7.0", "8.0")}))
    assert read["waiting", (("process", "1"),)] == 8
    assert read["waiting", (("process", "2"),)] == 7
    labels = (("process", "2"), ("route", "x{y}"), ("status", "404"))
    assert read["requests_total", labels] == 1
    assert read["clarion_processes", ()] == 2
    assert len(read) == 7


def test_a_metric_is_described_once_and_its_samples_are_together() -> None:
    lines = merge({1: TEXT, 2: TEXT}).decode().splitlines()
    assert lines.count("# TYPE waiting gauge") == 1
    at = lines.index("# TYPE waiting gauge")
    assert lines[at + 1 : at + 3] == ['waiting{process="1"} 7.0', 'waiting{process="2"} 7.0']


@pytest.fixture
async def buses() -> AsyncIterator[tuple[LocalBus, LocalBus]]:
    one, two = LocalBus(1), LocalBus(2)
    ours, theirs = socket.socketpair()
    await asyncio.gather(one.join(2, ours), two.join(1, theirs))
    yield one, two
    await asyncio.gather(one.close(), two.close())


async def test_whichever_is_asked_answers_for_all(buses: tuple[LocalBus, LocalBus]) -> None:
    gathered = [GatheredMetrics(bus, TEXT.encode, limit_s=30) for bus in buses]
    texts = await asyncio.gather(*(each.gather() for each in gathered * 2))
    assert set(texts) == {merge({1: TEXT, 2: TEXT})}


async def test_a_process_that_does_not_answer_is_left_out(
    buses: tuple[LocalBus, LocalBus],
) -> None:
    text = await GatheredMetrics(buses[0], TEXT.encode, limit_s=0.01).gather()
    assert text == merge({1: TEXT})
