"""JSON Schema: nothing is fetched, and no pattern takes long."""

import pytest

from clarion.catalog.json_schema import Schema, check_schema


@pytest.mark.parametrize(
    "document",
    [
        {"type": "objekt"},
        {"pattern": "("},
        {"$schema": "http://127.0.0.1:1/x"},
    ],
)
def test_an_invalid_schema_is_refused_and_nothing_is_fetched(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^must be a JSON Schema: "):
        check_schema(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"$ref": "http://127.0.0.1:1/x"}, r"at #/\$ref: must be a JSON pointer"),
        ({"$ref": "file:///etc/passwd"}, r"at #/\$ref: must be a JSON pointer"),
        ({"items": {"$ref": "#/nowhere"}}, r"at #/items/\$ref: there is no #/nowhere"),
    ],
)
def test_a_reference_stays_in_the_schema(document: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_schema(document)


def test_a_regular_expression_cannot_run_away() -> None:
    schema = Schema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert schema.find_faults({"a": "a" * 5_000 + "!"})[0].field == "data.a"
