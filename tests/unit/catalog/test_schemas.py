"""JSON Schema: nothing is fetched, and no pattern takes long."""

import pytest

from clarion.catalog.schemas import Schema, check_schema


@pytest.mark.parametrize(
    "document",
    [
        {"type": "objekt"},
        {"$ref": "http://127.0.0.1:1/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"pattern": "("},
        {"$schema": "http://127.0.0.1:1/x"},
    ],
)
def test_an_invalid_schema_is_refused_and_nothing_is_fetched(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^must be a JSON Schema: "):
        check_schema(document)


def test_a_regular_expression_cannot_run_away() -> None:
    schema = Schema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert schema.find_faults({"a": "a" * 5_000 + "!"})[0].field == "data.a"
