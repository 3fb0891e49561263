"""Metrics by name."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from clarion.events.metrics import PipelineMetrics
from clarion.pacing import WORK_SLICE_S
from clarion.push.metrics import GatewayMetrics
from clarion.push.model import MessageStatus, PushPriority
from clarion.telemetry.metrics import CircuitMetrics, Metrics
from clarion.telemetry.tallies import Scraped, Tally


def find_samples(metrics: Metrics) -> dict[str, float]:
    """Return every sample by its name and label values, as Prometheus reads them."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        " ".join(
            (sample.name, *(value for _, value in sorted(sample.labels.items())))
        ): sample.value
        for family in families
        for sample in family.samples
    }


def find_limits(found: dict[str, float], name: str) -> dict[str, float]:
    """Return the buckets of a histogram of one series, by their limits."""
    names = [each for each in found if each.startswith(f"{name}_bucket ")]
    return {each.split(" ")[1]: found[each] for each in names}


def read_slowly() -> list[Metric]:
    """Use more of the processor than background work may at a time."""
    until = time.thread_time() + WORK_SLICE_S
    while time.thread_time() < until:
        pass
    return [CounterMetricFamily("slow", "A metric that takes long.", 1)]


def test_a_request_is_counted_and_timed() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.observe_request("GET", "/health", 200, 0.003)
    text = metrics.render().decode()
    assert 'clarion_http_requests_total{method="GET",route="/health",status="200"} 2.0' in text
    assert 'clarion_http_request_seconds_count{route="/health"} 2.0' in text


def test_the_writer_is_read_when_asked() -> None:
    metrics = Metrics()
    writer = SimpleNamespace(
        units=0,
        batches=0,
        refused=0,
        waiting=7,
        waiting_bytes=9,
        sizes=Tally((1, 5)),
        times=Tally(),
    )
    metrics.watch_writer(writer)
    writer.units, writer.batches, writer.refused = 10, 2, 1
    writer.sizes.add(4)
    writer.sizes.add(6)
    text = metrics.render().decode()
    for line in (
        "units_total 10.0",
        "batches_total 2.0",
        "refused_total 1.0",
        "waiting 7.0",
        "waiting_bytes 9.0",
        'batch_units_bucket{le="1.0"} 0.0',
        'batch_units_bucket{le="5.0"} 1.0',
        'batch_units_bucket{le="+Inf"} 2.0',
        "batch_units_sum 10.0",
        "commit_seconds_count 0.0",
    ):
        assert f"clarion_store_{line}" in text


def test_messages_are_counted_by_priority_and_status() -> None:
    metrics = Metrics()
    gateway = GatewayMetrics(metrics.registry)
    gateway.count(PushPriority.IMMEDIATE, MessageStatus.QUEUED)
    gateway.count(PushPriority.IMMEDIATE, MessageStatus.QUEUED)
    gateway.observe_delivery(PushPriority.LOW, 0.5)
    text = metrics.render().decode()
    assert 'apns_notifications_sent_total{priority="10",status="queued"} 2.0' in text
    assert 'apns_notifications_sent_total{priority="1",status="delivered"} 1.0' in text


def test_the_names_labels_and_buckets_of_the_gateway() -> None:
    metrics = Metrics()
    gateway = GatewayMetrics(metrics.registry)
    gateway.observe_delivery(PushPriority.IMMEDIATE, 0.3)
    gateway.observe_delivery(PushPriority.IMMEDIATE, None)
    gateway.count_ended("expired", 2)
    gateway.pending = 7
    metrics.observe_request("POST", "/3/", 200, 0.03)
    metrics.observe_request("GET", "/v1/users", 200, 0.03)
    found = find_samples(metrics)
    limits = find_limits(found, "apns_http_request_duration_seconds")
    assert list(limits.values()) == [0, 1, 1, 1, 1, 1, 1, 1]
    assert list(limits) == ["0.01", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "+Inf"]
    limits = find_limits(found, "apns_notification_delivery_seconds")
    assert list(limits.values()) == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert list(limits) == ["0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"]
    assert found["apns_http_request_duration_seconds_count POST /3/ 200"] == 1
    assert found["apns_notifications_sent_total 10 delivered"] == 2
    assert found["apns_notifications_sent_total any expired"] == 2
    assert found["apns_pending_notifications"] == 7
    assert not any("/v1/users" in name for name in found if name.startswith("apns_"))


def test_a_tally_is_grouped_by_other_labels() -> None:
    tally = Tally((1, 2))
    for labels, value in ((("a", 1), 0.5), (("a", 2), 1.5), (("b", 1), 9.0)):
        tally.add(value, labels)
    assert tally.count() == {("a", 1): 1, ("a", 2): 1, ("b", 1): 1}
    grouped = tally.group(lambda each: each[:1] if each[0] == "a" else None)
    (found,) = [each.samples for each in [grouped.read("x", "X.", ("name",))]]
    assert [(each.labels.get("le"), each.value) for each in found] == [
        ("1.0", 1),
        ("2.0", 2),
        ("+Inf", 2),
        (None, 2),
        (None, 2.0),
    ]


def test_circuits_are_numbers() -> None:
    metrics = Metrics()
    circuits = CircuitMetrics(metrics.registry)
    circuits.watch(lambda: {"redis": "closed"})
    circuits.watch(lambda: {"email/smtp": "open", "sms/twilio": "half_open"})
    found = find_samples(metrics)
    assert [
        found[f"apns_circuit_breaker_state {name}"]
        for name in ("redis", "email/smtp", "sms/twilio")
    ] == [0, 1, 2]


def test_events_are_counted_by_status_and_reason() -> None:
    metrics, pipeline = Metrics(), PipelineMetrics()
    metrics.registry.register(pipeline)
    pipeline.accepted = 5
    pipeline.decided["deduplicated"] += 2
    pipeline.failures["deliver", True] += 1
    pipeline.failures["deliver", False] += 4
    queue: Any = SimpleNamespace(
        refused={"queue_age": 3},
        ages_s=lambda: {"high": 1.5},
        lengths=lambda: {"high": 8},
        dead_letters=1,
        stuck=2,
    )
    pipeline.watch_queue(queue)
    found = find_samples(metrics)
    assert {name: value for name, value in found.items() if "clarion_events_total" in name} == {
        "clarion_events_total  accepted": 5,
        "clarion_events_total  deduplicated": 2,
        "clarion_events_total queue_age refused": 3,
        "clarion_events_total deliver failed": 1,
    }
    assert found["clarion_queue_oldest_seconds high"] == 1.5
    assert found["clarion_queue_jobs high"] == 8
    assert found["clarion_dead_letters"] == 1
    assert found["clarion_deliveries_stuck"] == 2


def test_two_servers_in_one_process_do_not_share_their_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.observe_request("GET", "/health", 200, 0.001)
    assert "/health" not in second.render().decode()


async def test_it_is_the_same_text_in_turns() -> None:
    metrics = Metrics()
    metrics.observe_request("GET", "/health", 200, 0.001)
    GatewayMetrics(metrics.registry).count(10, "pending")
    at_once, in_turns = metrics.render(), await metrics.render_in_turns()
    # What the process uses differs from one moment to the next.
    lines = [
        [line for line in text.splitlines() if not line.startswith(b"process_")]
        for text in (at_once, in_turns)
    ]
    assert lines[0] == lines[1]


async def test_callers_share_a_text_that_was_begun_after_they_asked() -> None:
    metrics = Metrics()
    metrics.registry.register(Scraped(read_slowly))
    first = asyncio.create_task(metrics.render_in_turns())
    await asyncio.sleep(0)
    metrics.observe_request("GET", "/late", 200, 0.001)
    later = await asyncio.gather(*(metrics.render_in_turns() for _ in range(20)))
    assert b"/late" not in await first
    assert all(b"/late" in text for text in later)
    # If the first text had ended by then: one for the first of them, and one for the rest.
    assert len({id(text) for text in later}) <= 2


async def test_a_caller_that_leaves_takes_no_text_from_others() -> None:
    metrics = Metrics()
    metrics.registry.register(Scraped(read_slowly))
    first, second = (asyncio.create_task(metrics.render_in_turns()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert b"clarion_build_info" in await second


def test_prometheus_can_read_it() -> None:
    metrics = Metrics()
    metrics.observe_request("GET", 'a"b\\c\n', 200, 0.001)
    assert list(text_string_to_metric_families(metrics.render().decode()))
