"""Examples of bodies for the OpenAPI document, made of example values of their fields."""

from __future__ import annotations

from typing import Any

from clarion.http.example_values import VALUES


def add(document: dict[str, Any]) -> None:
    """Give every body of the document an example."""
    examples = _Examples(document["components"]["schemas"])
    for methods in document["paths"].values():
        for operation in methods.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for content in body.get("content", {}).values():
                    if "example" not in content:
                        content["example"] = examples.make(content["schema"])


class _Examples:
    """Makes examples. The most exact value counts: of a schema, of its field, of any such field."""

    def __init__(self, components: dict[str, Any]) -> None:
        self._components = components

    def make(self, schema: dict[str, Any], name: str = "", owner: str = "") -> Any:
        """Return an example of a schema, which can be that of the field `name` of `owner`."""
        for key in (f"{owner}.{name}", name):
            if key in VALUES and (key != name or _may_be(schema, VALUES[key])):
                return VALUES[key]
        if "$ref" in schema:
            referred = schema["$ref"].rpartition("/")[2]
            return VALUES[referred] if referred in VALUES else self._make_named(referred)
        if "examples" in schema:
            return schema["examples"][0]
        if "anyOf" in schema:
            return self.make(schema["anyOf"][0])
        return self._make_plain(schema)

    def _make_named(self, name: str) -> Any:
        component = self._components[name]
        if "properties" not in component:
            return self.make(component)
        # Of a request, only what must be given, and what there is a value for.
        is_request = component.get("additionalProperties") is False
        return {
            field: self.make(schema, field, name)
            for field, schema in component["properties"].items()
            if not is_request or field in component["required"] or f"{name}.{field}" in VALUES
        }

    def _make_plain(self, schema: dict[str, Any]) -> Any:
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "array":
                return [self.make(schema["items"])] if "items" in schema else []
            case "object":
                return {}
            case "boolean":
                return True
            case "integer" | "number":
                return schema.get("minimum", 1)
            case "string" if schema.get("format") == "date-time":
                return VALUES["created_at"]
            case "null":
                return None
            case _:
                return "text"


def _may_be(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value for all fields of a name has the type of this one."""
    options = schema.get("anyOf", [schema])
    if any("$ref" in option for option in options):
        return False
    wanted = {option.get("type") for option in options}
    return _TYPES.get(type(value)) in wanted or (isinstance(value, int) and "number" in wanted)


_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
