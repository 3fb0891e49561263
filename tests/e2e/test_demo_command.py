"""`clarion demo` against a running server: every kind of thing exists afterwards."""

import json
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation, command, environment
from tests.e2e.sending import COUNTED_LIMIT_S, wait_until
from tests.ops.operations import find_missing

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.rest("waits until a delivery has failed five times"),
]

PEOPLE = 20
FAST = ("--people", str(PEOPLE), "--speed", "20")
END_LIMIT_S = 60


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A server of its own: the demo is a client like others, so one constellation is enough."""
    installation = Installation(tmp_path_factory.mktemp("demo"))
    installation.initialise()
    with installation:
        yield installation


@pytest.fixture
def demo(installation: Installation) -> Iterator[Asker]:
    """Run the demo, and stop it as Ctrl-C does when enough has happened; yield its app's client."""
    running = subprocess.Popen(
        command("demo", *FAST, **installation.flags),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        app = wait_until(lambda: find_app(installation))
        wait_until(lambda: items(app, "/v1/users") or None)
        wait_until(lambda: has_delivered(app) or None)
        # A dead letter takes five attempts, about 17 seconds after the first event.
        wait_until(lambda: items(app, "/v1/events?status=failed") or None)
        running.send_signal(signal.SIGINT)
        printed, errors = running.communicate(timeout=END_LIMIT_S)
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()
    assert (running.returncode, errors) == (0, "")
    first, second, third, *counts, last = printed.splitlines()
    assert f"the app Demo shop with {PEOPLE} people" in first
    dashboard = f"http://127.0.0.1:{installation.port}/admin/apps/"
    assert second.startswith(f"Events, readers and devices are at work: {dashboard}")
    assert "Press Ctrl-C to stop" in third
    assert "connected" in counts[-1]
    assert "clarion demo --remove" in last
    yield app
    done = installation.run("demo", "--remove")
    assert (done.returncode, done.stdout) == (0, "Removed the demo.\n"), done.stderr


def find_app(installation: Installation) -> Asker | None:
    """Return a client with the key of the demo, as soon as there is one."""
    try:
        saved = json.loads((installation.data / "demo-app.json").read_text())
    except FileNotFoundError:
        return None
    return Asker(installation.port, saved["api_key"])


def items(app: Asker, path: str) -> list[dict[str, Any]]:
    answer = app.get(path)
    found: list[dict[str, Any]] = answer.json["items"] if answer.status == 200 else []
    return found


def has_delivered(app: Asker) -> bool:
    """Whether a message has arrived at a device."""
    answer = app.get("/v1/stats")
    return bool(answer.status == 200 and answer.json["messages"]["delivered"])


def count(app: Asker, metric: str) -> int | None:
    """Return how often something happened today; None if never."""
    found = app.get(f"/v1/analytics?metric={metric}&interval=day").json["series"]
    return sum(each["total"] for each in found) or None


def is_refused(app: Asker) -> bool | None:
    """Return True as soon as the key is not accepted any more."""
    return app.get("/v1/stats").status == 401 or None


def test_every_kind_of_thing_exists(demo: Asker, installation: Installation) -> None:
    metrics = Asker(installation.port).get("/metrics").body.decode()
    assert find_missing(metrics) == set(), "named in an alert or a dashboard of `ops`"
    assert "\nclarion_ledger_difference 0.0\n" in metrics
    people = items(demo, "/v1/users?limit=100")
    assert len(people) == PEOPLE
    assert len({each["language"] for each in people}) > 3
    assert len({each["timezone"] for each in people}) > 3
    devices = items(demo, "/v1/devices?limit=100")
    assert {each["platform"] for each in devices} == {"ios", "android", "web", "clarion"}
    assert items(demo, "/v1/feedback")
    assert {each["name"] for each in items(demo, "/v1/segments")} == {
        "german-speakers",
        "paying",
        "vips",
    }
    assert {each["type"] for each in items(demo, "/v1/types")} > {"ORDER_SHIPPED", "POST_LIKE"}
    assert {each["channel"] for each in items(demo, "/v1/providers")} >= {"email", "sms", "webhook"}
    stats = demo.get("/v1/stats").json
    assert len(stats["topics"]) == 3
    for status in ("scheduled", "cancelled", "failed"):
        assert items(demo, f"/v1/events?status={status}"), status
    assert any(items(demo, f"/v1/users/{each['id']}/waiting") for each in people)
    inboxes = [
        item for each in people for item in items(demo, f"/v1/users/{each['id']}/notifications")
    ]
    assert any(item["read_at"] for item in inboxes)
    assert any(item["count"] > 1 for item in inboxes)
    (dead, *_) = items(demo, "/v1/events?status=failed")
    assert demo.post(f"/v1/events/{dead['event_id']}/replay").status == 202
    for metric in (
        "events",
        "decisions",
        "deliveries",
        "messages",
        "reads",
        "clicks",
        "dismissals",
    ):
        wait_until(partial(count, demo, metric), COUNTED_LIMIT_S)


def test_it_is_made_again_after_it_was_removed(installation: Installation) -> None:
    for _ in range(2):
        done = installation.run("demo", "--people", "10", "--minutes", "0.01")
        assert done.returncode == 0, done.stderr
        app = find_app(installation)
        assert app is not None
        assert installation.run("demo", "--remove").stdout == "Removed the demo.\n"
        wait_until(partial(is_refused, app))
    assert installation.run("demo", "--remove").stdout == "There is no demo to remove.\n"


def test_without_a_server_it_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("nobody")
    flags = {"data": str(folder / "data"), "listen": "127.0.0.1:1"}
    done = subprocess.run(
        command("demo", **flags),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "No server is listening at http://127.0.0.1:1." in done.stderr
    assert not (folder / "data" / "demo-app.json").exists(), "nothing is created in vain"
