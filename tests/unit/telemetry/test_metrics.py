"""Metrics by name."""

from types import SimpleNamespace

from prometheus_client.parser import text_string_to_metric_families

from clarion.push.model import MessageStatus, PushPriority
from clarion.telemetry.metrics import GatewayMetrics, Metrics


def test_a_request_is_counted_and_timed() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.observe_request("GET", "/health", 200, 0.003)
    text = metrics.render().decode()
    assert 'clarion_http_requests_total{method="GET",route="/health",status="200"} 2.0' in text
    assert 'clarion_http_request_seconds_count{route="/health"} 2.0' in text


def test_the_writer_is_read_when_asked() -> None:
    metrics = Metrics()
    writer = SimpleNamespace(units=0, batches=0, refused=0, waiting=7, waiting_bytes=9)
    metrics.watch_writer(writer)
    writer.units, writer.batches, writer.refused = 10, 2, 1
    text = metrics.render().decode()
    for line in (
        "units_total 10.0",
        "batches_total 2.0",
        "refused_total 1.0",
        "waiting 7.0",
        "waiting_bytes 9.0",
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


def test_two_servers_in_one_process_do_not_share_their_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.observe_request("GET", "/health", 200, 0.001)
    assert "/health" not in second.render().decode()


def test_prometheus_can_read_it() -> None:
    metrics = Metrics()
    metrics.observe_request("GET", 'a"b\\c\n', 200, 0.001)
    assert list(text_string_to_metric_families(metrics.render().decode()))
