"""The OpenAPI document: handlers of the framework and fast routes side by side."""

import asyncio
from typing import Annotated, Any

import msgspec
import pytest
from litestar import get, put
from litestar.params import JSONBody

from clarion.errors import Conflict
from clarion.http.asgi import FastRoute, Operation, Parameter, Request, Response
from clarion.http.bodies import Body
from clarion.http.openapi import OpenApiDocument
from clarion.http.router import build
from tests.conftest import run_apart

Number = Annotated[int, msgspec.Meta(description="The number of the order.", ge=1)]


class Order(Body):
    """An order."""

    article: str
    """What is ordered,
    in two lines.
    """


class Receipt(msgspec.Struct):
    number: int


@get("/orders")
async def list_orders() -> list[Receipt]:
    return []


@put("/orders/{number:int}", errors=(Conflict,))
async def replace_order(number: Number, data: JSONBody[Order]) -> Receipt:
    assert data.article
    return Receipt(number)


async def answer(_request: Request) -> Response:
    return Response(200)


CREATE = Operation(
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
    assert described["operationId"] == "create_order"
    assert described["tags"] == ["Orders"]
    assert described["parameters"][0] == {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A repeat changes nothing.",
        "schema": {"type": "string"},
    }
    body = described["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Order"}
    assert body["example"] == {"article": "text"}
    assert described["responses"]["201"]["description"] == "It is created."
    answer = described["responses"]["201"]["content"]["application/json"]
    assert answer["schema"] == {"$ref": "#/components/schemas/Receipt"}


def test_a_fast_route_without_documentation_is_not_in_the_document(
    document: dict[str, Any],
) -> None:
    assert set(document["paths"]) == {"/orders", "/orders/{number}"}


def test_an_operation_names_the_errors_that_it_can_answer(document: dict[str, Any]) -> None:
    always = {"400", "401", "403", "404", "422", "429", "500", "503"}
    listed = document["paths"]["/orders"]["get"]["responses"]
    assert set(listed) == {"200"} | always
    created = document["paths"]["/orders"]["post"]["responses"]
    assert set(created) == {"201", "408", "409", "413", "415", "507"} | always
    replaced = document["paths"]["/orders/{number}"]["put"]["responses"]
    assert set(replaced) == {"200", "408", "409", "413", "415", "507"} | always
    assert created["422"] == {"$ref": "#/components/responses/UnprocessableEntity"}
    response = document["components"]["responses"]["UnprocessableEntity"]
    assert "`invalid_fields`: " in response["description"]
    assert "Retry-After" in document["components"]["responses"]["TooManyRequests"]["headers"]


def test_fields_are_described_by_the_strings_below_them(document: dict[str, Any]) -> None:
    order = document["components"]["schemas"]["Order"]
    assert order["description"] == "An order."
    assert order["properties"]["article"]["description"] == "What is ordered, in two lines."
    assert order["additionalProperties"] is False


def test_parameters_are_described_by_their_types(document: dict[str, Any]) -> None:
    (number,) = document["paths"]["/orders/{number}"]["put"]["parameters"]
    assert number["description"] == "The number of the order."
    assert number["schema"] == {"type": "integer", "minimum": 1}
    assert number["required"]


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    references = set(find_references(document))
    components = document["components"]
    assert {name.rpartition("/")[2] for name in references} <= {
        *components["schemas"],
        *components["responses"],
    }
    assert "#/components/schemas/Problem" in references


def find_references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in find_references(each)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return own + find_references(list(value.values()))
