"""Nodes with different roles on one PostgreSQL: one takes events in, another works on them."""

from pathlib import Path

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import draft, get_event, inbox, make_type, make_user, send, wait_for_event


def test_a_node_without_workers_leaves_the_work_to_others(
    tmp_path: Path, postgres_database: str
) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "works").mkdir()
    api = Installation(tmp_path / "api", database=postgres_database, roles="api")
    key = api.initialise()["app"]["api_key"]
    works = Installation(
        tmp_path / "works", database=postgres_database, data=str(api.data), roles="worker"
    )
    with api:
        app = Asker(api.port, key)
        ana, order = make_user(app), make_type(app)
        event_id = send(app, draft(order, user_id=ana))
        app.post("/v1/events/batch", {"events": [draft(order, user_id=ana)] * 20})
        assert (get_event(app, event_id)["status"], inbox(app, ana)) == ("pending", [])
        with works:
            assert wait_for_event(app, event_id)["status"] == "completed"
            ids = [each["event_id"] for each in app.get("/v1/events?limit=100").json["items"]]
            assert {wait_for_event(app, each)["status"] for each in ids} == {"completed"}
            assert len(inbox(app, ana)) == 21
        # No worker runs any more, so this one waits.
        assert get_event(app, send(app, draft(order, user_id=ana)))["status"] == "pending"
