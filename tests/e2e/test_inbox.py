"""The inbox of a running server: lists, counts and actions, for apps and for users."""

import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser

ITEM = {
    "id",
    "type",
    "category",
    "priority",
    "title",
    "body",
    "deeplink",
    "image_url",
    "actor",
    "target",
    "data",
    "count",
    "read_at",
    "dismissed_at",
    "created_at",
    "sequence",
}


@pytest.fixture
def ana(server: Server) -> InboxUser:
    user = InboxUser(server)
    assert server.app.ask("PUT", f"/v1/users/{user.id}", {}).status == 201
    return user


def test_an_item_has_the_documented_fields(ana: InboxUser) -> None:
    (made,) = ana.add()
    page = ana.me.get("/v1/me/notifications").json
    assert set(page) == {"items", "next", "unread_count", "sequence"}
    (item,) = page["items"]
    assert set(item) == ITEM
    assert (page["unread_count"], page["sequence"], page["next"]) == (1, 1, None)
    assert item["id"] == made
    assert item["priority"] == "medium"
    assert item["actor"] == {"id": "bo", "name": "Bo"}
    assert item["target"] == {"id": "p1", "type": "post"}
    assert item["data"] == {"snippet": "hé"}
    assert item["created_at"] == "2026-01-01T00:00:00.000Z"


def test_the_app_sees_what_the_user_sees(server: Server, ana: InboxUser) -> None:
    ids = sorted(ana.add(3))
    path = f"/v1/users/{ana.id}"
    first = server.app.get(f"{path}/notifications?limit=2").json
    rest = server.app.get(f"{path}/notifications?limit=2&after={first['next']}").json
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    assert rest["next"] is None
    assert server.app.get(f"{path}/unread-count").json == {"unread_count": 3, "sequence": 3}
    assert ana.me.get("/v1/me/unread-count").json == {"unread_count": 3, "sequence": 3}
    changed = server.app.post(f"{path}/notifications/{ids[0]}/read").json
    assert changed["read_at"] is not None
    assert changed["unread_count"] == 2
    left = ana.me.get("/v1/me/notifications?unread=true&category=social").json["items"]
    assert [item["id"] for item in left] == ids[:0:-1]
    assert server.app.get(f"{path}/notifications?category=news").json["items"] == []


def test_actions_can_be_repeated(ana: InboxUser) -> None:
    (made,) = ana.add()
    first = ana.apply("read", made)
    assert ana.apply("read", made) == first
    assert (first["unread_count"], first["sequence"]) == (0, 2)
    assert ana.apply("unread", made)["unread_count"] == 1
    gone = ana.apply("dismiss", made)
    assert gone["dismissed_at"] is not None
    assert gone["unread_count"] == 0
    assert ana.apply("unread", made) == gone
    assert ana.me.get("/v1/me/notifications").json["items"] == []


def test_everything_is_read_at_once(ana: InboxUser) -> None:
    ana.add(5)
    for _ in range(2):
        answer = ana.me.post("/v1/me/notifications/read-all")
        assert (answer.status, answer.json) == (200, {"unread_count": 0, "sequence": 10})


def test_a_new_user_has_an_empty_inbox(server: Server, ana: InboxUser) -> None:
    page = server.app.get(f"/v1/users/{ana.id}/notifications").json
    assert page == {"items": [], "next": None, "unread_count": 0, "sequence": 0}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("unread=perhaps", "unread"),
        ("category=weather", "category"),
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("after=x", "after"),
        ("after=", "after"),
    ],
)
def test_a_bad_query_is_named(server: Server, ana: InboxUser, query: str, field: str) -> None:
    for asker, path in ((ana.me, "/v1/me"), (server.app, f"/v1/users/{ana.id}")):
        answer = asker.get(f"{path}/notifications?{query}")
        assert (answer.status, answer.fields) == (422, [field])


@pytest.mark.parametrize("name", ["%0A", "x" * 129, "%C3%BC"])
@pytest.mark.parametrize("path", ["unread-count", "notifications", "waiting", "devices"])
def test_an_id_that_no_user_can_have_is_not_found(server: Server, name: str, path: str) -> None:
    answer = server.app.get(f"/v1/users/{name}/{path}")
    assert (answer.status, answer.problem["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    "nid", ["x", "%0A", "0190f000-0000-7000-8000-000000000001", "%F0%9F%9A%80"]
)
def test_an_action_on_an_unknown_notification_is_404(ana: InboxUser, nid: str) -> None:
    for action in ("read", "unread", "dismiss"):
        answer = ana.me.post(f"/v1/me/notifications/{nid}/{action}")
        assert (answer.status, answer.problem["code"]) == (404, "not_found")


def test_nobody_else_sees_or_changes_it(server: Server, ana: InboxUser) -> None:
    (made,) = ana.add()
    bo = InboxUser(server)
    assert bo.me.get("/v1/me/notifications").json["items"] == []
    assert bo.me.post(f"/v1/me/notifications/{made}/read").status == 404
    assert bo.me.get(f"/v1/users/{ana.id}/notifications").status == 403
    other_app = server.with_key(server.make_app()["api_key"])
    assert other_app.get(f"/v1/users/{ana.id}/notifications").status == 404
    assert other_app.post(f"/v1/users/{ana.id}/notifications/{made}/dismiss").status == 404
    assert server.anyone.get("/v1/me/notifications").status == 401
    assert server.app.get("/v1/me/notifications").status == 403
    assert ana.me.get("/v1/me/unread-count").json["unread_count"] == 1


def test_a_key_needs_the_scope(server: Server, ana: InboxUser) -> None:
    (made,) = ana.add()
    path = f"/v1/users/{ana.id}"
    reader = server.make_key("notifications:read")
    assert reader.get(f"{path}/notifications").status == 200
    assert reader.post(f"{path}/notifications/{made}/read").status == 403
    assert reader.post(f"{path}/notifications/read-all").status == 403
    writer = server.make_key("notifications:write")
    assert writer.get(f"{path}/unread-count").status == 403
    assert writer.post(f"{path}/notifications/{made}/read").status == 200


def tag_of(asker: Asker, path: str) -> str:
    answer = asker.get(path)
    assert answer.status == 200, answer.body
    return answer.headers["etag"]


@pytest.mark.parametrize("path", ["notifications", "notifications?unread=true", "unread-count"])
def test_who_has_a_response_is_told_that_it_is_current(
    server: Server, ana: InboxUser, path: str
) -> None:
    made = ana.add(2)
    tag = tag_of(ana.me, f"/v1/me/{path}")
    known = {"If-None-Match": f'"x", W/{tag}'}
    for asker, place in ((ana.me, "/v1/me"), (server.app, f"/v1/users/{ana.id}")):
        answer = asker.ask("GET", f"{place}/{path}", headers=known)
        assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", tag)
        assert {"x-request-id", "ratelimit-limit"} <= answer.headers.keys()
    ana.apply("read", made[0])
    answer = ana.me.ask("GET", f"/v1/me/{path}", headers=known)
    assert answer.status == 200
    assert answer.headers["etag"] != tag
    assert answer.json["unread_count"] == 1


def test_a_tag_is_of_one_user_and_one_query(server: Server, ana: InboxUser) -> None:
    bo = InboxUser(server)
    for user in (ana, bo):
        user.add()
    paths = ["notifications", "notifications?limit=1", "notifications?unread=1", "unread-count"]
    tags = {tag_of(user.me, f"/v1/me/{path}") for user in (ana, bo) for path in paths}
    assert len(tags) == 2 * len(paths)
    both = {tag_of(ana.me, "/v1/me/notifications"), tag_of(ana.me, "/v1/me/notifications?limit=20")}
    assert len(both) == 1


def test_a_tag_opens_nothing(server: Server, ana: InboxUser) -> None:
    ana.add()
    known = {"If-None-Match": "*"}
    path = f"/v1/users/{ana.id}/notifications"
    assert server.anyone.ask("GET", path, headers=known).status == 401
    assert InboxUser(server).me.ask("GET", path, headers=known).status == 403
    assert server.app.ask("GET", f"{path}?limit=0", headers=known).status == 422
    assert server.app.ask("GET", "/v1/users/nobody/notifications", headers=known).status == 404
    assert server.app.ask("GET", path, headers=known).status == 304


def test_other_methods_are_refused_with_those_there_are(ana: InboxUser) -> None:
    for path in (f"/v1/users/{ana.id}/notifications", "/v1/me/unread-count"):
        answer = ana.me.ask("DELETE", path)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
