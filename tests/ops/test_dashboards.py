"""The dashboards are those of the script, and draw what the server exports."""

import json

from tests.ops.operations import DASHBOARDS, find_missing, list_dashboard_metrics
from tools.dashboards import render


def test_the_files_are_those_that_the_script_writes() -> None:
    assert {path: path.read_text() for path in DASHBOARDS.glob("*.json")} == render()


def test_panels_have_a_place_of_their_own() -> None:
    for path in DASHBOARDS.glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        places = {(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels}
        assert len(places) == len(panels) == len({each["id"] for each in panels})
        assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in panels)


def test_a_metric_that_is_not_exported_is_found() -> None:
    missing = find_missing(
        "# TYPE apns_pending_notifications gauge\napns_pending_notifications 0\n"
    )
    assert "apns_pending_notifications" not in missing
    assert {"clarion_ledger_difference", "clarion_decide_seconds_bucket"} <= missing
    assert list_dashboard_metrics() - missing == {"apns_pending_notifications"}
