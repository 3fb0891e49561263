"""Unsubscribing by the link of an email, on a real server: GET shows, POST changes."""

import uuid

import pytest

from clarion.catalog.model import Channel
from clarion.people.unsubscribe import PATH, UnsubscribeLinks
from clarion.system.data_directory import DataDirectory
from tests.e2e.conftest import Server

ONE_CLICK = {"Content-Type": "application/x-www-form-urlencoded"}
MULTIPART = (
    b'--x\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--x--\r\n'
)


@pytest.fixture
def user(server: Server) -> str:
    user_id = f"ana-{uuid.uuid4().hex}"
    assert server.app.ask("PUT", f"/v1/users/{user_id}", {"name": "Ana"}).status < 300
    return user_id


def path_of(server: Server, user_id: str, type_name: str = "POST_LIKE") -> str:
    keys = DataDirectory(server.installation.data).read_master_keys()
    app_id = server.first["app"]["id"]
    return UnsubscribeLinks(keys, "").make(app_id, user_id, type_name, Channel.EMAIL)


def is_on(server: Server, user_id: str, type_name: str = "POST_LIKE") -> bool:
    preferences = server.app.get(f"/v1/users/{user_id}/preferences").json
    assert preferences["types"][type_name]["push"] is True
    return bool(preferences["types"][type_name]["email"])


def test_get_shows_and_changes_nothing(server: Server, user: str) -> None:
    path = path_of(server, user)
    for _ in range(2):
        page = server.anyone.get(path)
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "script" not in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert b'<form method="post">' in page.body
        assert b"<script" not in page.body
    assert is_on(server, user)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click"),
        ("multipart/form-data; boundary=x", MULTIPART),
        ("application/x-www-form-urlencoded", b""),
    ],
)
def test_post_turns_the_type_off_for_email_alone(
    server: Server, user: str, content_type: str, body: bytes
) -> None:
    path = path_of(server, user)
    for _ in range(2):
        done = server.anyone.ask("POST", path, body, headers={"Content-Type": content_type})
        assert done.status == 200
        assert b"You are unsubscribed" in done.body
        assert not is_on(server, user)
    assert b"<form" not in server.anyone.get(path).body
    assert is_on(server, user, "POST_COMMENT")


def test_what_cannot_be_turned_off_stays_on(server: Server, user: str) -> None:
    path = path_of(server, user, "SECURITY_ACCOUNT_LOCKED")
    assert b"<form" not in server.anyone.get(path).body
    assert server.anyone.ask("POST", path, b"x", headers=ONE_CLICK).status == 409


@pytest.mark.parametrize(
    "tail", ["", "x", "a" * 64, "..", "%00", "a" * 4_000, "a/b", "%3Cscript%3E"]
)
def test_a_token_that_is_none_of_ours_is_answered_404(server: Server, tail: str) -> None:
    for method in ("GET", "POST"):
        answer = server.anyone.ask(
            method, PATH + tail, b"a=b" if method == "POST" else None, headers=ONE_CLICK
        )
        assert answer.status == 404
        assert b"<script>" not in answer.body


def test_the_link_of_a_user_who_is_gone_is_answered_404(server: Server) -> None:
    assert server.anyone.get(path_of(server, "nobody")).status == 404
    assert server.anyone.get(path_of(server, "nobody", "NO_SUCH_TYPE")).status == 404


def test_other_methods_are_refused(server: Server, user: str) -> None:
    for method in ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = server.anyone.ask(method, path_of(server, user))
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
    assert is_on(server, user)


def test_a_large_body_is_refused(server: Server, user: str) -> None:
    answer = server.anyone.ask("POST", path_of(server, user), b"x" * 10_000, headers=ONE_CLICK)
    assert answer.status == 413
    assert is_on(server, user)


def test_a_link_that_is_used_too_often_is_refused(server: Server, user: str) -> None:
    statuses = [server.anyone.get(path_of(server, user)).status for _ in range(130)]
    assert 429 in statuses


def test_the_name_of_a_type_is_shown_as_text(server: Server, user: str) -> None:
    name = f"T_{uuid.uuid4().hex}"
    server.app.ask("PUT", f"/v1/types/{name}", {"display_name": "<script>alert(1)</script>"})
    page = server.anyone.get(path_of(server, user, name))
    assert b"&lt;script&gt;" in page.body
    assert b"<script" not in page.body
