"""Sample data for a type: what its schema and its templates ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ACTOR = {"id": "ana", "name": "Ana"}
TARGET = {"id": "post-1", "type": "post"}
_DEFAULT = {"snippet": "What a nice day"}
_BY_KIND: dict[str, Any] = {
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def make_data(
    schema: Mapping[str, Any] | None, templates: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a value for each property of the schema and each variable of the templates."""
    names = (name for each in templates for name in each["variables"])
    data = {name: _name_sample(name) for name in names}
    for name, property_ in _properties_of(schema).items():
        data[name] = _make_value(name, property_)
    return data or dict(_DEFAULT)


def _properties_of(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (schema or {}).get("properties", {})
    return found if isinstance(found, Mapping) else {}


def _make_value(name: str, property_: Any) -> Any:
    if not isinstance(property_, Mapping):
        return _name_sample(name)
    for key in ("const", "default"):
        if key in property_:
            return property_[key]
    for key in ("examples", "enum"):
        if isinstance(property_.get(key), list) and property_[key]:
            return property_[key][0]
    kind = property_.get("type")
    return _BY_KIND.get(kind, _name_sample(name)) if isinstance(kind, str) else _name_sample(name)


def _name_sample(name: str) -> str:
    return f"Sample {name.replace('_', ' ')}"
