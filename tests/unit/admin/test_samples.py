"""Sample data by the schema of a type and the variables of its templates."""

from clarion.admin.samples import make_data

SCHEMA = {
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "color": {"enum": ["red", "blue"]},
        "size": {"default": 7},
        "note": {"examples": ["Hi"], "type": "string"},
        "kind": {"const": "x"},
        "free": True,
    }
}


def test_each_property_and_variable_has_a_value() -> None:
    assert make_data(SCHEMA, [{"variables": ["name", "first_name"]}]) == {
        "name": "Sample name",
        "first_name": "Sample first name",
        "count": 1,
        "color": "red",
        "size": 7,
        "note": "Hi",
        "kind": "x",
        "free": "Sample free",
    }


def test_a_type_that_needs_nothing_has_a_snippet() -> None:
    assert make_data(None, []) == {"snippet": "What a nice day"}
    assert make_data({"properties": []}, []) == {"snippet": "What a nice day"}
