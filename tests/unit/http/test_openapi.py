"""The OpenAPI document: handlers of the framework and fast routes side by side."""

import asyncio
from typing import Any

import msgspec
import pytest
from litestar import get, put
from litestar.params import FromPath, JSONBody

from clarion.http.asgi import FastRoute, Operation, Parameter, Request, Response
from clarion.http.bodies import Body
from clarion.http.openapi import OpenApiDocument
from clarion.http.router import build
from tests.conftest import run_apart


class Order(Body):
    """An order."""

    article: str


class Receipt(msgspec.Struct):
    number: int


@get("/orders")
async def list_orders() -> list[Receipt]:
    return []


@put("/orders/{number:int}")
async def replace_order(number: FromPath[int], data: JSONBody[Order]) -> Receipt:
    assert data.article
    return Receipt(number)


async def answer(_request: Request) -> Response:
    return Response(200)


CREATE = Operation(
    id="CreateOrder",
    summary="Create an order",
    description="Create it.",
    tag="Orders",
    status=201,
    parameters=(Parameter("Idempotency-Key", "header", str, "A repeat changes nothing."),),
    body=Order,
    response=Receipt,
    response_description="It is created.",
)
FAST = (FastRoute("POST", "/orders", answer, CREATE), FastRoute("GET", "/health", answer))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    served = OpenApiDocument(build([list_orders, replace_order], {}), FAST)

    async def read_twice() -> tuple[bytes, bytes]:
        return await asyncio.gather(served.read(), served.read())

    first, second = run_apart(read_twice())
    assert first is second
    read: dict[str, Any] = msgspec.json.decode(first)
    return read


def test_a_fast_route_stands_beside_the_handlers_of_its_path(document: dict[str, Any]) -> None:
    assert set(document["paths"]["/orders"]) == {"get", "post"}
    described = document["paths"]["/orders"]["post"]
    assert described["operationId"] == "CreateOrder"
    assert described["tags"] == ["Orders"]
    assert described["parameters"][0] == {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A repeat changes nothing.",
        "schema": {"type": "string"},
    }
    assert described["requestBody"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Order"}}
    }
    assert described["responses"]["201"] == {
        "description": "It is created.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Receipt"}}},
    }


def test_a_fast_route_without_documentation_is_not_in_the_document(
    document: dict[str, Any],
) -> None:
    assert set(document["paths"]) == {"/orders", "/orders/{number}"}


def test_every_operation_answers_errors_with_a_problem(document: dict[str, Any]) -> None:
    for path in document["paths"].values():
        for operation in path.values():
            assert "400" not in operation["responses"]
            (media_type,) = operation["responses"]["default"]["content"]
            assert media_type == "application/problem+json"


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    references = set(find_references(document))
    assert {name.rpartition("/")[2] for name in references} <= set(
        document["components"]["schemas"]
    )
    assert "#/components/schemas/Problem" in references


def find_references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in find_references(each)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return own + find_references(list(value.values()))
