"""Paths of fast routes with a parameter: which path is which."""

import pytest

from clarion.http.paths import PathTemplates

LIST, COUNT = "/v1/users/{user_id}/notifications", "/v1/users/{user_id}/unread-count"
TEMPLATES = PathTemplates([LIST, COUNT, "/v1/me/notifications"])


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/users/ana/notifications", LIST),
        ("/v1/users/ana/notifications/", LIST),
        ("/v1/users/notifications/notifications", LIST),
        ("/v1/users/ana/unread-count", COUNT),
    ],
)
def test_a_path_has_its_template(path: str, template: str) -> None:
    assert TEMPLATES.find(path) == template


@pytest.mark.parametrize(
    "path",
    [
        "/v1/me/notifications",
        "/v1/users/ana",
        "/v1/users/notifications",
        "/v1/users/ana/notifications/1/read",
        "/v1/users/ana/bo/notifications",
        "/v1/users/ana-notifications",
        "/v2/users/ana/notifications",
    ],
)
def test_any_other_path_is_itself(path: str) -> None:
    assert TEMPLATES.find(path) is path
    assert PathTemplates([]).find(path) is path
