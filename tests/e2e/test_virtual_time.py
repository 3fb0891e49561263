"""`--clock test`: tests of apps move time, and what becomes due is done at its own moment."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.e2e.asking import Answer, Asker
from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.sending import deliveries, draft, inbox, make_type, make_user, send, timeline

CLOCK = "/v1/test/clock"
BOTH = ["in_app", "stub"]


@pytest.fixture(scope="module")
def of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    installation = Installation(tmp_path_factory.mktemp("tests"), clock="test")
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


@pytest.fixture
def app(of_tests: Server) -> Asker:
    return of_tests.app


def move(app: Asker, **how: str) -> datetime:
    answer = app.post(CLOCK, how)
    assert answer.status == 200, answer.body
    assert answer.json["is_settled"]
    return datetime.fromisoformat(answer.json["now"])


def read_clock(app: Asker) -> datetime:
    return datetime.fromisoformat(app.get(CLOCK).json["now"])


def make_reader(app: Asker, stub: str, **fields: Any) -> str:
    return make_user(app, attributes={"stub": stub}, **fields)


def test_the_clock_moves_ahead_and_runs_on(app: Asker) -> None:
    before = read_clock(app)
    after = move(app, advance="P1DT2H")
    assert timedelta(hours=26) <= after - before < timedelta(hours=27)
    moment = (after + timedelta(minutes=5)).isoformat()
    assert move(app, now=moment) >= datetime.fromisoformat(moment)
    shown = datetime.fromisoformat(app.get("/health").json["timestamp"])
    assert shown >= datetime.fromisoformat(moment)
    assert app.get("/health").json["clock"] == "test"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "advance"),
        ({"advance": "PT1H", "now": "2030-01-01T00:00:00Z"}, "advance"),
        ({"advance": "2 hours"}, "advance"),
        ({"advance": "PT"}, "advance"),
        ({"advance": "P1M"}, "advance"),
        ({"advance": "-PT1H"}, "advance"),
        ({"advance": "P1000W"}, "advance"),
        ({"now": "2020-01-01T00:00:00Z"}, "now"),
        ({"now": "9999-01-01T00:00:00Z"}, "now"),
        ({"advanced": "PT1H"}, "advanced"),
    ],
)
def test_what_is_no_time_to_come_is_refused(app: Asker, body: dict[str, str], field: str) -> None:
    answer = app.post(CLOCK, body)
    assert (answer.status, answer.fields) == (422, [field])


def test_a_digest_of_an_hour_takes_no_time(app: Asker) -> None:
    body = "{{ count }} orders, the last is {{ order }}"
    order = make_type(app, body, default_channels=BOTH, digest={"window_s": 3600})
    ana = make_reader(app, "delivered")
    for name in ("A", "B", "C"):
        send(app, draft(order, user_id=ana) | {"data": {"order": name}})
    move(app, advance="PT0S")
    newest, *older = [item["id"] for item in inbox(app, ana)]
    assert deliveries(app, newest)["stub"]["status"] == "collected"
    move(app, advance="PT59M")
    assert deliveries(app, newest)["stub"]["status"] == "collected"
    move(app, advance="PT2M")
    assert deliveries(app, newest)["stub"]["status"] == "delivered"
    assert {deliveries(app, each)["stub"]["status"] for each in older} == {"folded"}


def test_quiet_hours_end(app: Asker) -> None:
    """At night nothing is sent; it is when the first hour comes that is not quiet."""
    now = read_clock(app)
    quiet = [hour in {now.hour, (now.hour + 1) % 24} for hour in range(24)]
    order = make_type(app, default_channels=BOTH)
    ana = make_reader(app, "delivered", quiet_hours=quiet, timezone="UTC")
    send(app, draft(order, user_id=ana))
    move(app, advance="PT0S")
    (item,) = inbox(app, ana)
    found = deliveries(app, item["id"])["stub"]
    assert (found["status"], found["reason"]) == ("held", "quiet_hours")
    move(app, now=found["until"])
    found = deliveries(app, item["id"])["stub"]
    assert found["status"] == "delivered"
    assert datetime.fromisoformat(found["sent_at"]).minute == 0


def test_retries_run_at_their_times_on_the_way(app: Asker) -> None:
    order = make_type(app, default_channels=BOTH)
    ana = make_reader(app, "retry")
    send(app, draft(order, user_id=ana))
    move(app, advance="P7D")
    (item,) = inbox(app, ana)
    found = deliveries(app, item["id"])["stub"]
    assert (found["status"], found["reason"]) == ("failed", "attempts_exhausted")
    moments = [datetime.fromisoformat(each["attempted_at"]) for each in found["attempts"]]
    waits = [b - a for a, b in pairwise(moments)]
    assert len(moments) == 5
    assert sorted(waits) == waits
    assert waits[0] > timedelta(milliseconds=100)
    assert timeline(app, item["id"])


def test_a_scheduled_event_is_sent_at_its_time(app: Asker) -> None:
    order = make_type(app)
    ana = make_user(app)
    at = read_clock(app) + timedelta(days=3)
    send(app, draft(order, user_id=ana) | {"scheduled_at": at.isoformat()})
    move(app, advance="P2D")
    assert inbox(app, ana) == []
    move(app, advance="P2D")
    (item,) = inbox(app, ana)
    assert timedelta() <= datetime.fromisoformat(item["created_at"]) - at < timedelta(minutes=1)


def test_only_an_app_with_the_scope_moves_the_clock(of_tests: Server, app: Asker) -> None:
    def ask(credential: str) -> Answer:
        return of_tests.with_key(credential).post(CLOCK, {"advance": "PT1H"})

    first = of_tests.first["app"]
    now = int(read_clock(app).timestamp())
    claims = {"sub": "ana", "aud": first["id"], "exp": now + 600}
    key = app.post("/v1/keys", {"label": "reads", "scopes": ["events:read"]}).json["api_key"]
    before = read_clock(app)
    assert ask("").status == 401
    assert ask(f"ck_{uuid.uuid4().hex}").status == 401
    assert ask(jwt.encode(claims, first["user_secret"], "HS256")).status == 403
    assert ask(key).status == 403
    assert read_clock(app) - before < timedelta(hours=1)


def test_without_the_test_clock_there_is_no_such_operation(server: Server) -> None:
    assert server.app.post(CLOCK, {"advance": "PT1H"}).status == 404
    assert server.app.get(CLOCK).status == 404
    assert CLOCK not in server.anyone.get("/openapi.json").json["paths"]
    assert "clock" not in server.anyone.get("/health").json


def test_a_directory_is_for_tests_or_for_everything_else(tmp_path: Path) -> None:
    """In a time to come everything would expire."""
    usual = Installation(tmp_path)
    with usual:
        pass
    done = usual.run("serve", clock="test")
    assert (done.returncode, "Choose another directory with --data" in done.stderr) == (2, True)
    (tmp_path / "t").mkdir()
    of_tests = Installation(tmp_path / "t", clock="test")
    with of_tests:
        assert "test_clock" in of_tests.events()
    done = of_tests.run("serve", clock="system")
    assert (done.returncode, "Start with --clock test" in done.stderr) == (2, True)


def test_the_test_clock_is_refused_where_others_would_have_another(
    tmp_path: Path, postgres_database: str
) -> None:
    installation = Installation(tmp_path, clock="test")
    for flags in ({"database": postgres_database}, {"redis": "redis://127.0.0.1:1/0"}):
        done = installation.run("serve", **flags)
        assert (done.returncode, "--clock test: needs SQLite" in done.stderr) == (2, True)
    assert not installation.data.exists()
