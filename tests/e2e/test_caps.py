"""Frequency caps of the installation and of apps: how much a user gets in an hour, of all types."""

import json
from pathlib import Path

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import draft, explain, inbox, make_type, make_user, send_and_wait


def test_a_user_gets_so_much_of_a_category_and_in_all(tmp_path: Path) -> None:
    installation = Installation(tmp_path, category_per_hour="2", user_per_hour="3")
    key = installation.initialise()["app"]["api_key"]
    with installation:
        app = Asker(installation.port, key)
        news, other = make_type(app, category="news"), make_type(app, category="news")
        social = make_type(app, category="social")
        ana = make_user(app)
        for each in (news, other, news, social, social):
            assert send_and_wait(app, draft(each, user_id=ana))["status"] == "completed"
        shown = [item["type"] for item in inbox(app, ana)]
        waiting = app.get(f"/v1/users/{ana}/waiting").json["items"]
        assert len(shown) + len(waiting) == 5
        # More if an hour has ended just now.
        assert shown == [social, other, news] or len(shown) > 3
        reasons = {channel["reason"] for each in waiting for channel in each["channels"]}
        assert reasons <= {"limit_waits"}
        alarm = make_type(app, category="security")
        verdict = explain(app, draft(alarm, user_id=ana))["in_app"]
        assert (verdict["verdict"], verdict["reason"]) == ("send", "mandatory")
        bo = make_user(app)
        send_and_wait(app, draft(social, user_id=bo))
        assert len(inbox(app, bo)) == 1


def test_an_app_may_have_limits_of_its_own(tmp_path: Path) -> None:
    """Those of the installation hold for the others; null gives them back, and 0 means none."""
    installation = Installation(tmp_path, user_per_hour="1")
    key = installation.initialise()["app"]["api_key"]
    with installation:
        app = Asker(installation.port, key)
        news = make_type(app, category="news")
        made = json.loads(installation.run("app", "create", "Other", "com.example.other").stdout)
        other = Asker(installation.port, made["api_key"])
        assert is_held(app, news)
        assert app.ask("PATCH", "/v1/app", {"user_per_hour": 0}).json["user_per_hour"] == 0
        assert not is_held(app, news)
        changed = app.ask("PATCH", "/v1/app", {"user_per_hour": None, "category_per_hour": 1})
        assert (changed.json["user_per_hour"], changed.json["category_per_hour"]) == (None, 1)
        assert is_held(app, news)
        assert is_held(other, make_type(other, category="news"))
        done = installation.run("app", "limits", made["id"], "0", "default")
        assert "0" in done.stdout
        assert installation.run("app", "limits", made["id"], "-1", "default").returncode == 2
        assert other.get("/v1/app").json["user_per_hour"] == 0
        for wrong in (-1, 1_000_001, "1", True):
            assert app.ask("PATCH", "/v1/app", {"user_per_hour": wrong}).status == 422


def is_held(app: Asker, type_name: str) -> bool:
    """Whether the second of two notifications of a new user waits, or an hour has just ended."""
    user = make_user(app)
    for _ in range(2):
        send_and_wait(app, draft(type_name, user_id=user))
    (verdict,) = {explain(app, draft(type_name, user_id=user))["in_app"]["reason"]}
    return bool(verdict == "limit_waits")
