"""The files in `ops`, and the metrics that they name."""

import json
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
OPS = ROOT / "ops"
ALERTS = OPS / "prometheus" / "alerts.yml"
DASHBOARDS = OPS / "grafana" / "dashboards"
_METRIC = re.compile(r"\b(?:apns|clarion|process)_\w+")


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def read_manifests(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file of Kubernetes."""
    return list(yaml.safe_load_all(path.read_text()))


def list_alerts() -> list[dict[str, Any]]:
    """Return every rule of the file of alerts."""
    return [rule for group in read_yaml(ALERTS)["groups"] for rule in group["rules"]]


def find_metrics(expression: str) -> set[str]:
    """Return the names of our metrics in an expression of Prometheus."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', "", expression)))


def list_alert_metrics() -> set[str]:
    return {name for rule in list_alerts() for name in find_metrics(rule["expr"])}


def list_dashboard_metrics() -> set[str]:
    """Return every metric that a panel of a dashboard draws."""
    dashboards = [json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))]
    targets = [
        target for each in dashboards for panel in each["panels"] for target in panel["targets"]
    ]
    assert targets
    return {name for target in targets for name in find_metrics(target["expr"])}


def find_missing(text: str) -> set[str]:
    """Return what alerts and dashboards need and a text of /metrics does not have.

    An alert needs a value: without one it never fires. A panel may be empty while nothing happens.
    """
    samples = set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))
    families = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    parts = {f"{name}{part}" for name in families for part in ("_bucket", "_count", "_sum")}
    return (list_alert_metrics() - samples) | (list_dashboard_metrics() - families - parts)
