"""The router: every fault of a parameter or body names the field and the reason."""

from typing import Any

import pytest
from litestar import get, post
from litestar.exceptions import NotAuthorizedException, SerializationException
from litestar.params import FromQuery, JSONBody
from litestar.testing import TestClient

from clarion.errors import Conflict, InternalError, RequestError
from clarion.http.bodies import Body
from clarion.http.parameters import Limit
from clarion.http.router import build, translate
from clarion.pages import PAGE_DEFAULT


class Order(Body):
    article: str
    count: int = 1


@get("/orders")
async def list_orders(
    shop: FromQuery[str],
    limit: Limit = PAGE_DEFAULT,
    is_open: FromQuery[bool] = False,  # noqa: FBT002 - a parameter of the query
) -> str:
    return f"{shop} {limit} {is_open}"


@post("/orders")
async def create_order(data: JSONBody[Order]) -> str:
    return f"{data.count} {data.article}"


@pytest.fixture(scope="module")
def client() -> TestClient[Any]:
    return TestClient(build([list_orders, create_order], {}))


def faults(problem: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["field"], each["reason"]) for each in problem["errors"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("shop=a&limit=x", ("limit", "must be an integer")),
        ("shop=a&limit=1.5", ("limit", "must be an integer")),
        ("shop=a&is_open=maybe", ("is_open", "must be true or false")),
        ("limit=1", ("shop", "is required")),
        (
            "shop=a&limt=1",
            (
                "limt",
                (
                    "is not a parameter of this operation; it takes is_open, limit, shop; "
                    "did you mean limit?"
                ),
            ),
        ),
    ],
)
def test_a_wrong_parameter_is_named(
    client: TestClient[Any], query: str, expected: tuple[str, str]
) -> None:
    answer = client.get(f"/orders?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_fields")
    assert faults(answer.json()) == [expected]


def test_all_wrong_parameters_are_named(client: TestClient[Any]) -> None:
    answer = client.get("/orders?shop=a&limit=x&is_open=maybe")
    assert [field for field, _ in faults(answer.json())] == ["limit", "is_open"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", ("article", "is required")),
        (b'{"article": 7}', ("article", "must be a string, not an integer")),
        (b'{"article": "a", "count": "1"}', ("count", "must be an integer, not a string")),
        (b'{"article": "a", "x": 1}', ("x", "there is no such field")),
        (b"[]", ("body", "must be an object, not an array")),
    ],
)
def test_a_wrong_field_of_a_body_is_named(
    client: TestClient[Any], body: bytes, expected: tuple[str, str]
) -> None:
    answer = client.post("/orders", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_fields")
    assert faults(answer.json()) == [expected]


def test_a_missing_body_is_named(client: TestClient[Any]) -> None:
    answer = client.post("/orders")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_fields")
    assert faults(answer.json()) == [("body", "is required")]


def test_an_unknown_path_or_method_is_a_problem(client: TestClient[Any]) -> None:
    assert client.get("/nowhere").json()["code"] == "not_found"
    assert client.put("/orders").json()["code"] == "method_not_allowed"


def test_errors_of_the_framework_are_translated() -> None:
    error = Conflict("It exists.")
    assert translate(error) is error
    refused = translate(NotAuthorizedException("No."))
    assert (type(refused), refused.detail) == (RequestError, "No.")
    for unforeseen in (RuntimeError(), SerializationException()):
        assert type(translate(unforeseen)) is InternalError
