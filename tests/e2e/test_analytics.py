"""Analytics of a running server: what happened is counted once, and shown within seconds."""

import uuid
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.sending import COUNTED_LIMIT_S, inbox, make_user, send_and_wait, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def api_key(server: Server) -> str:
    """The key of another app, so that its counts are those of the test alone."""
    key: str = server.make_app()["api_key"]
    return key


@pytest.fixture
def app(server: Server, api_key: str) -> Asker:
    return server.with_key(api_key)


def totals(app: Asker, metric: str, group_by: str = "", **more: str) -> dict[tuple[str, ...], int]:
    """Return the totals of today and yesterday: the test may run at midnight."""
    query = {"metric": metric, "interval": "day", "group_by": group_by, **more}
    answer = app.get("/v1/analytics?" + "&".join(f"{name}={text}" for name, text in query.items()))
    assert answer.status == 200, answer.body
    return {tuple(each["group"].values()): each["total"] for each in answer.json["series"]}


def wait_for(
    app: Asker, expected: dict[tuple[str, ...], int], metric: str, group_by: str = ""
) -> None:
    """Wait until everything is counted; what is counted twice never becomes this."""
    wait_until(lambda: totals(app, metric, group_by) == expected or None, COUNTED_LIMIT_S)


def test_what_happened_is_counted_once(app: Asker) -> None:
    ana = make_user(app, attributes={"stub": "delivered"})
    event = {
        "type": "POST_COMMENT",
        "recipient": {"user_id": ana},
        "actor": {"name": "Bo"},
        "channels": ["in_app", "stub"],
    }
    for _ in range(3):
        send_and_wait(app, event)
    first, second, _ = inbox(app, ana)
    path = f"/v1/users/{ana}/notifications"
    actions = ("read", "unread", "read", "click", "click", "dismiss", "dismiss")
    for action in actions:
        assert app.post(f"{path}/{first['id']}/{action}").status == 200
    assert app.post(f"{path}/{second['id']}/read").status == 200
    outcomes: dict[tuple[str, ...], int] = {
        (channel, outcome): 3 for channel in ("in_app", "stub") for outcome in ("sent", "delivered")
    }
    # The last of these that happen: when they are counted, so is everything before.
    wait_for(app, {(): 2}, "reads")
    wait_for(app, outcomes, "deliveries", "channel,outcome")
    assert totals(app, "events", "type") == {("POST_COMMENT",): 3}
    assert totals(app, "notifications") == {(): 3}
    assert totals(app, "decisions", "channel,reason") == {
        ("in_app", "allowed"): 3,
        ("stub", "allowed"): 3,
    }
    assert totals(app, "deliveries", "channel,outcome") == outcomes
    assert totals(app, "clicks", type="POST_COMMENT") == {(): 1}
    assert totals(app, "clicks", type="POST_LIKE") == {}
    assert totals(app, "dismissals") == {(): 1}


def test_a_report_says_what_it_is_about(app: Asker) -> None:
    moments = "from=2026-01-01T10:29:59Z&to=2026-01-01T12:00:00.001Z"
    report = app.get(f"/v1/analytics?metric=delivery_latency&{moments}").json
    complete_until = report.pop("complete_until")
    assert complete_until is None or complete_until > "2026"
    assert report == {
        "metric": "delivery_latency",
        "interval": "hour",
        "from": "2026-01-01T10:00:00.000Z",
        "to": "2026-01-01T13:00:00.000Z",
        "series": [],
    }


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("metric=likes", "metric", "must be one of events, notifications"),
        ("metric=events&interval=week", "interval", "must be one of minute, hour, day"),
        ("metric=events&group_by=channel", "group_by", "must be some of type for events"),
        ("metric=events&group_by=type,", "group_by", "must be some of type for events"),
        ("metric=events&channel=push", "channel", "is not known of events"),
        ("metric=deliveries&channel=fax", "channel", "must be one of in_app, push"),
        ("metric=deliveries&platform=fax", "platform", "must be one of ios"),
        ("metric=events&from=yesterday", "from", "must be a time (RFC 3339)"),
        ("metric=events&to=2026-01-01", "to", "must be a time (RFC 3339)"),
        ("metric=events&from=2999-01-01T00:00:00Z", "from", "must be before `to`"),
        (
            "metric=events&interval=minute&from=2026-01-01T00:00:00Z",
            "from",
            "choose a longer interval",
        ),
    ],
)
def test_a_fault_names_the_parameter(app: Asker, query: str, field: str, reason: str) -> None:
    answer = app.get(f"/v1/analytics?{query}")
    assert answer.status == 422, answer.body
    (fault,) = answer.json["errors"]
    assert fault["field"] == field
    assert reason in fault["reason"]


def test_latencies_have_percentiles(app: Asker) -> None:
    ana = make_user(app, attributes={"stub": "delivered"})
    event: dict[str, Any] = {"type": "POST_COMMENT", "recipient": {"user_id": ana}}
    send_and_wait(app, {**event, "actor": {"name": "Bo"}, "channels": ["stub"]})
    path = "/v1/analytics?metric=delivery_latency&interval=day&group_by=channel"
    (series,) = wait_until(lambda: app.get(path).json["series"] or None, COUNTED_LIMIT_S)
    assert (series["group"], series["total"]) == ({"channel": "stub"}, 1)
    assert set(series["percentiles"]) == {"p50", "p95", "p99"}
    (by_bucket,) = app.get(f"{path},bucket").json["series"]
    assert str(series["percentiles"]["p50"]) in (by_bucket["group"]["bucket"], "None")


def test_the_command_prints_a_table(server: Server, app: Asker, api_key: str) -> None:
    ana = make_user(app)
    event = {"type": "POST_COMMENT", "recipient": {"user_id": ana}, "actor": {"name": "Bo"}}
    send_and_wait(app, event)
    wait_for(app, {(): 1}, "events")
    flags = ("--by", "type", "--interval", "day", "--last", "2", "--api-key", api_key)
    done = server.installation.run("analytics", "events", *flags)
    assert done.returncode == 0, done.stderr
    heading, *days, total, complete = done.stdout.splitlines()
    assert heading.split() == ["time", "(UTC)", "POST_COMMENT"]
    assert sum(int(day.split()[-1]) for day in days) == 1
    assert (total.split(), complete[:14]) == (["total", "1"], "Complete until")


def test_an_app_sees_its_own_counts_alone(server: Server, app: Asker) -> None:
    ana = make_user(app)
    type_name = f"T{uuid.uuid4().hex}"
    assert app.ask("PUT", f"/v1/types/{type_name}", {"default_channels": ["in_app"]}).status == 200
    template = {"body": "new", "variables": []}
    path = f"/v1/types/{type_name}/templates/in_app"
    assert app.ask("PUT", path, template).status == 200
    send_and_wait(app, {"type": type_name, "recipient": {"user_id": ana}})
    wait_for(app, {(type_name,): 1}, "events", "type")
    assert totals(server.app, "events", type=type_name) == {}
