"""The cost of a schema: counted with its references followed, in time that is linear itself."""

from typing import Any

import pytest

from clarion.catalog.schema_cost import COST_LIMIT, OverBudget, measure
from clarion.catalog.schemas import SMALL_COST, load_small
from tests.stopwatch import count_units


def double(keyword: str, levels: int) -> dict[str, Any]:
    """Return a schema of which each level refers twice to the one below it."""
    definitions: dict[str, Any] = {"n0": {"type": "string"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/n{level - 1}"}
        definitions[f"n{level}"] = {keyword: [below, dict(below)]}
    return {"$ref": f"#/$defs/n{levels}", "$defs": definitions}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "prefixItems"])
def test_references_multiply(keyword: str) -> None:
    assert [measure(double(keyword, levels)).total for levels in (0, 1, 2, 3)] == [2, 6, 14, 30]
    with pytest.raises(OverBudget, match=r"^#/\$defs/n1\d: costs more than 10,000 subschemas"):
        measure(double(keyword, 29))


def test_a_chain_of_references_is_limited() -> None:
    with pytest.raises(OverBudget, match=r"^#/\$defs/n\d+: is more than 100 subschemas"):
        measure(double("allOf", 400))


@pytest.mark.parametrize(
    "document",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#"}}},
    ],
)
def test_a_reference_to_itself_for_the_same_value_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OverBudget, match="refers to itself for the same value"):
        measure(document)


def test_a_tree_is_allowed_and_its_cost_is_not_known() -> None:
    tree = {"properties": {"children": {"items": {"$ref": "#"}}}}
    assert measure(tree).is_known is False
    assert measure({"properties": {"children": {"items": {}}}}).is_known is True


@pytest.mark.parametrize(
    "document",
    [
        {"$dynamicRef": "#x"},
        {"items": {"$anchor": "x"}},
        {"items": {"$id": "http://example.com/"}},
        {"properties": {"a": {"$recursiveRef": "#"}}},
    ],
)
def test_names_that_are_resolved_elsewhere_are_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OverBudget, match="is not supported"):
        measure(document)


@pytest.mark.parametrize(
    ("document", "is_small"),
    [
        ({"type": "object", "properties": {"a": {"enum": ["x", "y"], "maxLength": 9}}}, True),
        ({"properties": {"a": {"pattern": r"^[A-Z]{2}-\d{4}$"}}}, True),
        ({"properties": {"a": {"format": "date-time"}}}, True),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}, True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "format": "regex"}, False),
        ({"unevaluatedProperties": False}, False),
        ({"pattern": r"(\w{100}){100}"}, False),
        ({"enum": list(range(SMALL_COST))}, False),
        ({"unknown": 1}, False),
        (double("allOf", 11), False),
    ],
)
def test_only_what_is_certainly_cheap_is_small(document: dict[str, Any], *, is_small: bool) -> None:
    assert (load_small(document) is not None) is is_small


def test_a_small_schema_takes_only_small_data() -> None:
    small = load_small({"properties": {"a": {"items": {"enum": list(range(300))}}}})
    assert small is not None
    assert small.find_faults({"a": list(range(100))}) == ()
    assert small.find_faults({"a": list(range(300))}) is None
    # That there are faults is known at once, but to name them takes longer.
    assert small.find_faults({"a": [-1] * 100}) is None


@pytest.mark.timing
@pytest.mark.parametrize(
    "document",
    [
        double("anyOf", 99),
        {"properties": {f"p{n}": {"type": "string"} for n in range(2_000)}},
        {"allOf": [{}] * 20_000},
        {"enum": [{"a": "b" * 1_000}] * 60},
        {"patternProperties": {"a" * n: {} for n in range(300)}},
    ],
)
def test_the_count_itself_is_short(document: dict[str, Any]) -> None:
    def count() -> None:
        with pytest.raises(OverBudget):
            measure(document, limit=min(COST_LIMIT, SMALL_COST))

    assert count_units(count) < 50
