"""Writes the dashboards of Grafana in ops/grafana from the tables below.

Run it after a change here: `python tools/dashboards.py`. tests/ops compares the files.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "ops" / "grafana" / "dashboards"
WIDTH, HEIGHT, ROW = 8, 8, 24
# Title, unit, and what is drawn: expressions by their legends.
Panel = tuple[str, str, dict[str, str]]


def quantiles(metric: str, by: str = "", where: str = "") -> dict[str, str]:
    """Return the median and the 99th percentile of a histogram."""
    group = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({group}) (rate({metric}_bucket{where}[$__rate_interval]))"
    return {
        f"p50{legend}": f"histogram_quantile(0.5, {rate})",
        f"p99{legend}": f"histogram_quantile(0.99, {rate})",
    }


def rate(metric: str, by: str = "", where: str = "") -> str:
    group = f" by ({by})" if by else ""
    return f"sum{group} (rate({metric}{where}[$__rate_interval]))"


OVERVIEW: Sequence[Panel] = (
    ("Ledger difference: must be 0", "short", {"lost": "max(clarion_ledger_difference)"}),
    ("Nodes", "short", {"up": 'sum(up{job="clarion"})', "{{version}}": "clarion_build_info"}),
    (
        "Dependencies",
        "short",
        {"{{instance}} {{dependency}}": "apns_dependency_health"},
    ),
    (
        "Events",
        "eps",
        {"{{status}} {{reason}}": rate("clarion_events_total", "status, reason")},
    ),
    ("Oldest due job", "s", {"{{lane}}": "max by (lane) (clarion_queue_oldest_seconds)"}),
    (
        "Jobs that wait",
        "short",
        {"{{lane}}": "max by (lane) (clarion_queue_jobs)", "dead": "max(clarion_dead_letters)"},
    ),
    ("Time to decide", "s", quantiles("clarion_decide_seconds")),
    ("Time to render", "s", quantiles("clarion_render_seconds")),
    ("Time to deliver", "s", quantiles("clarion_delivery_seconds", "channel")),
    (
        "Deliveries",
        "eps",
        {"{{channel}} {{status}}": rate("clarion_deliveries_total", "channel, status")},
    ),
    (
        "Attempts with providers",
        "eps",
        {"{{kind}} {{outcome}}": rate("clarion_channel_attempts_total", "kind, outcome")},
    ),
    (
        "Time of an attempt",
        "s",
        quantiles("clarion_channel_attempt_seconds", "kind"),
    ),
    (
        "Circuit breakers: 1 open, 2 half open",
        "short",
        {"{{circuit}}": "max by (circuit) (apns_circuit_breaker_state)"},
    ),
    (
        "Failed attempts of jobs",
        "eps",
        {"{{kind}} dead={{is_dead}}": rate("clarion_jobs_failed_total", "kind, is_dead")},
    ),
    (
        "Live inbox clients",
        "short",
        {"{{instance}}": "clarion_inbox_streams"},
    ),
)
GATEWAY: Sequence[Panel] = (
    (
        "Messages delivered, of those that ended",
        "percentunit",
        {
            "delivered": rate("apns_notifications_sent_total", where='{status="delivered"}')
            + " / "
            + rate("apns_notifications_sent_total", where='{status=~"delivered|expired|failed"}')
        },
    ),
    (
        "Time to the acknowledgement, high priority",
        "s",
        quantiles("apns_notification_delivery_seconds", where='{priority="10"}'),
    ),
    (
        "Messages",
        "eps",
        {"{{priority}} {{status}}": rate("apns_notifications_sent_total", "priority, status")},
    ),
    ("Messages that wait", "short", {"waiting": "max(apns_pending_notifications)"}),
    ("Connected devices", "short", {"{{instance}}": "apns_active_device_connections"}),
    ("WebSocket connections", "short", {"{{instance}}": "clarion_gateway_connections"}),
    ("Devices left alone", "short", {"{{instance}}": "clarion_device_circuits_open"}),
    (
        "Look-ups answered from memory",
        "percentunit",
        {
            "{{cache}}": rate("apns_cache_hits_total", "cache")
            + " / "
            + rate("apns_cache_operations_total", "cache")
        },
    ),
    (
        "Misses of the caches",
        "eps",
        {"{{cache}}": rate("apns_cache_misses_total", "cache")},
    ),
    (
        "Operations on tokens",
        "ops",
        {"{{operation}}": rate("apns_token_operations_total", "operation")},
    ),
    (
        "Time of requests",
        "s",
        quantiles("apns_http_request_duration_seconds", "route"),
    ),
    (
        "Requests",
        "reqps",
        {"{{route}} {{status}}": rate("apns_http_request_duration_seconds_count", "route, status")},
    ),
)
NODE: Sequence[Panel] = (
    (
        "Requests",
        "reqps",
        {"{{status}}": rate("clarion_http_requests_total", "status")},
    ),
    ("Time of requests", "s", quantiles("clarion_http_request_seconds")),
    (
        "HTTP connections",
        "short",
        {"{{instance}}": "clarion_http_connections"},
    ),
    (
        "Connections closed by the server",
        "cps",
        {"{{reason}}": rate("clarion_http_connections_closed_total", "reason")},
    ),
    ("How late the event loop runs", "s", quantiles("clarion_loop_lag_seconds", "instance")),
    (
        "Stalls of the event loop, restarts of background loops",
        "eps",
        {
            "stalls {{instance}}": rate("clarion_loop_stalls_total", "instance"),
            "restarts {{loop}}": rate("clarion_loop_restarts_total", "loop"),
        },
    ),
    ("Time of a commit", "s", quantiles("clarion_store_commit_seconds", "instance")),
    ("Units in a commit", "short", quantiles("clarion_store_batch_units", "instance")),
    (
        "Units",
        "eps",
        {
            "committed": rate("clarion_store_units_total"),
            "commits": rate("clarion_store_batches_total"),
            "refused": rate("clarion_store_refused_total"),
        },
    ),
    (
        "Units that wait for a commit",
        "short",
        {"{{instance}}": "clarion_store_waiting"},
    ),
    (
        "Size of the units that wait",
        "bytes",
        {"{{instance}}": "clarion_store_waiting_bytes"},
    ),
    (
        "Sandbox",
        "eps",
        {
            "{{kind}} {{result}}": rate("clarion_sandbox_jobs_total", "kind, result"),
            "restarts {{reason}}": rate("clarion_sandbox_restarts_total", "reason"),
        },
    ),
    ("Memory", "bytes", {"{{instance}}": 'process_resident_memory_bytes{job="clarion"}'}),
    (
        "Processor",
        "percentunit",
        {"{{instance}}": rate("process_cpu_seconds_total", "instance", '{job="clarion"}')},
    ),
    ("Open files", "short", {"{{instance}}": 'process_open_fds{job="clarion"}'}),
    (
        "Free space",
        "percentunit",
        {"{{instance}}": "clarion_data_free_bytes / clarion_data_size_bytes"},
    ),
    (
        "Certificate expires in",
        "s",
        {"{{instance}}": "clarion_certificate_expiry_timestamp_seconds - time()"},
    ),
)
DASHBOARDS = {
    "overview": ("Clarion", OVERVIEW),
    "gateway": ("Clarion: push gateway", GATEWAY),
    "node": ("Clarion: nodes", NODE),
}


def make_panel(number: int, panel: Panel) -> dict[str, Any]:
    title, unit, drawn = panel
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number * WIDTH % ROW,
            "y": number * WIDTH // ROW * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (legend, expression) in enumerate(drawn.items())
        ],
    }


def make_dashboard(name: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    return {
        "uid": f"clarion-{name}",
        "title": title,
        "tags": ["clarion"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [make_panel(*each) for each in enumerate(panels)],
    }


def render() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        FOLDER / f"{name}.json": json.dumps(make_dashboard(name, *about), indent=2) + "\n"
        for name, about in DASHBOARDS.items()
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in render().items():
        path.write_text(text)
