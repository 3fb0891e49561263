"""Frequency caps of the installation: how much a user gets in an hour, of all types."""

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
