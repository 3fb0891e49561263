"""Figures of a node out of its metrics."""

from clarion.admin.node_figures import read_figures
from clarion.app.processes.gathered_metrics import merge

TEXT = """# HELP clarion_gateway_connections Open connections.
# TYPE clarion_gateway_connections gauge
clarion_gateway_connections 12.0
clarion_http_requests_total{method="GET",route="/v1/users/{user_id}",status="200"} 5.0
clarion_loop_lag_seconds_count 4.0
clarion_loop_lag_seconds_sum 0.01
clarion_queue_oldest_seconds{lane="high"} 1.5
clarion_provider_circuits_open{channel="email",kind="smtp"} 1.0
clarion_provider_circuits_open{channel="email",kind="apprise"} 2.0
clarion_device_circuits_open 4.0
clarion_loop_restarts_total{loop="worker_1"} 0.0
clarion_loop_restarts_total{loop="queue_age"} 3.0
"""


def test_figures_are_read() -> None:
    figures = read_figures(TEXT)
    assert figures.gateway_connections == 12
    assert figures.lag_ms == 2.5
    assert figures.queue_ages == {"high": 1.5}
    assert (figures.open_circuits, figures.devices_left_alone) == (3, 4)
    assert figures.restarts == {"queue_age": 3}


def test_what_is_not_measured_is_zero() -> None:
    assert read_figures("").units == 0
    assert read_figures("").lag_ms == 0


def test_figures_of_several_processes_are_shown_as_those_of_one() -> None:
    other = TEXT.replace('lane="high"} 1.5', 'lane="high"} 2.5')
    figures = read_figures(merge({1: TEXT, 2: other}).decode())
    assert figures.queue_ages == {"high": 2.5}
    assert figures.gateway_connections == 24
    assert (figures.lag_ms, figures.open_circuits) == (2.5, 6)
    assert figures.restarts == {"queue_age": 6}
