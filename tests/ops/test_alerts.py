"""Every alert fires and clears, has its place in the runbook, and is evaluated by a Prometheus."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import wait_until
from tests.ops.operations import ALERTS, OPS, ROOT, find_metrics, list_alerts, read_yaml
from tests.processes import free_port
from tests.programs import find_program

pytestmark = pytest.mark.timeout(300)
TESTS = ALERTS.with_name("alerts.test.yml")
CONFIGURATION = ALERTS.with_name("prometheus.yml")
NAMES = [rule["alert"] for rule in list_alerts()]
# Those that come with the usual names of metrics, and those that follow from what we promise.
PROMISED = {
    "DeliverySuccessRateLow",
    "HighPriorityLatencyHigh",
    "PendingBacklogHigh",
    "CacheHitRatioLow",
    "NoActiveConnections",
    "ClarionLedgerDifference",
    "ClarionOldestDueWork",
    "ClarionDeadLetters",
    "ClarionCertificateExpiresSoon",
    "ClarionLoopLag",
    "ClarionQueueRefusing",
    "ClarionStoreRefusing",
    "ClarionCircuitOpen",
    "ClarionRedisAway",
    "ClarionDiskAlmostFull",
}


def run_promtool(*arguments: str | Path, folder: Path = ALERTS.parent) -> str:
    done = subprocess.run(
        [find_program("promtool", "prometheus"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_promised_is_watched() -> None:
    assert set(NAMES) >= PROMISED
    assert len(NAMES) == len(set(NAMES))


def test_prometheus_accepts_the_configurations_and_the_rules() -> None:
    for name in ("prometheus.yml", "containers.yml"):
        run_promtool("check", "config", name)
    assert f"{len(NAMES)} rules found" in run_promtool("check", "rules", ALERTS.name)


def test_every_alert_fires_and_clears() -> None:
    assert "SUCCESS" in run_promtool("test", "rules", TESTS.name)


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_an_alert_are_silent_then_fire_then_silent(name: str) -> None:
    cases = [
        case
        for test in read_yaml(TESTS)["tests"]
        for case in test["alert_rule_test"]
        if case["alertname"] == name
    ]
    assert [bool(case.get("exp_alerts")) for case in cases] == [False, True, False]


def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    """The negative control: without the alert, the tests of it must not pass."""
    broken = re.sub(r"max\(clarion_ledger_difference\) > 0", "vector(0) > 0", ALERTS.read_text())
    (tmp_path / ALERTS.name).write_text(broken)
    shutil.copy(TESTS, tmp_path)
    with pytest.raises(AssertionError, match="ClarionLedgerDifference"):
        run_promtool("test", "rules", TESTS.name, folder=tmp_path)


def find_headings(page: str) -> dict[str, str]:
    """Return the sections of a page by their anchors."""
    parts = re.split(r"^#{2,3} (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    return {title.lower().replace(" ", "-"): text for title, text in sections}


@pytest.mark.parametrize("rule", list_alerts(), ids=NAMES)
def test_the_runbook_says_what_an_alert_means_how_to_see_why_and_what_to_do(
    rule: dict[str, Any],
) -> None:
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    section = find_headings(page)[anchor]
    assert anchor == rule["alert"].lower()
    for part in ("**Means**", "**See why**", "**Do**"):
        assert part in section
    assert find_metrics(rule["expr"]) == set() or rule["labels"]["severity"] in section
    assert rule["annotations"]["summary"]


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[Installation, str]]:
    """A server with our rules watched by a real Prometheus; yield it and the address of that."""
    program, port = find_program("prometheus", "prometheus"), free_port()
    installation = Installation(tmp_path)
    installation.initialise()
    text = CONFIGURATION.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{installation.port}")
    (tmp_path / CONFIGURATION.name).write_text(text.replace("15s", "1s"))
    shutil.copy(ALERTS, tmp_path)
    with installation, (tmp_path / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(
            [
                program,
                f"--config.file={tmp_path / CONFIGURATION.name}",
                f"--storage.tsdb.path={tmp_path / 'metrics'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            yield installation, f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait(60)


def ask(address: str, path: str) -> Any:
    """Return what Prometheus answers, or None while it does not."""
    try:
        with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)["data"]
    except OSError:
        return None


def query(address: str, expression: str) -> list[float] | None:
    """Return the values of an expression, or None while there are none."""
    found = ask(address, "query?query=" + urllib.parse.quote(expression))
    return [float(each["value"][1]) for each in found["result"]] or None if found else None


def find_evaluated(address: str) -> list[dict[str, Any]] | None:
    """Return the rules when each has been evaluated."""
    found = ask(address, "rules?type=alert")
    rules = [rule for group in found["groups"] for rule in group["rules"]] if found else []
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None


def test_a_prometheus_scrapes_a_server_and_evaluates_every_rule(
    prometheus: tuple[Installation, str],
) -> None:
    installation, address = prometheus
    assert wait_until(lambda: query(address, 'up{job="clarion"} == 1')) == [1.0]
    rules = wait_until(lambda: find_evaluated(address))
    assert {rule["name"]: rule.get("lastError", "") for rule in rules} == dict.fromkeys(NAMES, "")
    assert wait_until(lambda: query(address, "clarion_ledger_difference")) == [0.0]
    # Counted by the server, scraped, and found again.
    asker = Asker(installation.port)
    assert asker.get("/health").status == 200
    health = 'clarion_http_requests_total{route="/health"} > 0'
    assert wait_until(lambda: query(address, health))
    refused = [rule["name"] for rule in rules if rule["state"] == "firing"]
    assert set(refused) <= {"ClarionDiskAlmostFull"}, "a machine may have a full disk"


def test_every_file_of_operations_is_named_in_the_docs() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    files = [path for path in OPS.rglob("*") if path.is_file()]
    folders = {path.parent.relative_to(ROOT).as_posix() for path in files}
    assert [name for name in sorted(folders) if name not in pages] == []
