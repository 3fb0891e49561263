"""Whatever an app sends, what runs in the event loop is short: the rest is left to the sandbox."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clarion.catalog.rendering.limits import check_size
from clarion.catalog.rendering.quick import Unsupported, compile_quickly
from clarion.catalog.schema_cost import measure
from clarion.catalog.schemas import SMALL_WORK, TINY_WORK, load_small
from clarion.errors import InvalidFields
from clarion.fields import check_json
from tests.stopwatch import count_units

pytestmark = pytest.mark.timing

# The worst of these takes about 15 units; without limits they took up to 40,000.
LIMIT = 50
DATA_LIMIT = 65_536
Grow = Callable[[int], dict[str, Any]]


def timed(work: Callable[[], object]) -> object:
    """Return what the work returns, after asserting that it is short."""
    assert count_units(work) < LIMIT
    return work()


def fill(grow: Grow, most: float) -> dict[str, Any]:
    """Return the largest data within a number of bytes."""
    most = min(most, DATA_LIMIT)
    # Each step takes at least a byte.
    each = max(1, len(msgspec.json.encode(grow(2))) - len(msgspec.json.encode(grow(1))))
    count = int(most) // each
    while count and len(msgspec.json.encode(grow(count))) > most:
        count = count * 9 // 10
    return grow(count)


def try_schema(document: dict[str, Any], grow: Grow) -> None:
    """Check the largest data that this process takes, and all other sizes above it."""
    small = timed(lambda: load_small(document))
    if small is None:
        return
    cost = measure(document).total
    for work in (TINY_WORK, SMALL_WORK, 10 * SMALL_WORK):
        data = fill(grow, work / cost)
        timed(lambda data=data: small.find_faults(data))  # type: ignore[attr-defined, misc]


def items(schema: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {"a": {"items": schema}}}


def doubled(levels: int, keyword: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {"n0": {"type": "string"}}
    for level in range(1, levels + 1):
        below = {"$ref": f"#/$defs/n{level - 1}"}
        definitions[f"n{level}"] = {keyword: [below, dict(below)]}
    return {**items({"$ref": f"#/$defs/n{levels}"}), "$defs": definitions}


def repeat(value: object) -> Grow:
    return lambda count: {"a": [value] * count}


HOSTILE: dict[str, tuple[dict[str, Any], Grow]] = {
    "enum": (items({"enum": list(range(900))}), repeat(-1)),
    "enum of objects": (items({"enum": [{"a": n} for n in range(200)]}), repeat({"a": -1})),
    "enum that passes": (items({"anyOf": [{"enum": list(range(200))}, {}]}), repeat(-1)),
    "const": (items({"anyOf": [{"const": [0] * 500}, {}]}), repeat([0] * 499 + [1])),
    "type": (items({"type": "string"}), repeat(1)),
    "allOf": (items({"allOf": [{"type": "string"}] * 300}), repeat(1)),
    "anyOf": (items({"anyOf": [{"type": "string"}] * 300}), repeat(1)),
    "oneOf": (items({"oneOf": [{"type": "integer"}] * 300}), repeat(1)),
    "references": (doubled(8, "anyOf"), repeat(1)),
    "more references": (doubled(29, "allOf"), repeat(1)),
    "not": (items({"not": {"not": {"type": "string"}}}), repeat(1)),
    "if": (items({"if": {"type": "integer"}, "then": {"type": "string"}}), repeat(1)),
    "required": (items({"required": [f"p{n}" for n in range(200)]}), repeat({})),
    "names": ({"propertyNames": {"pattern": "^x"}}, lambda n: {f"k{i}": 1 for i in range(n // 8)}),
    "additional": ({"additionalProperties": False}, lambda n: dict.fromkeys(map(str, range(n)), 1)),
    "pattern": ({"properties": {"a": {"pattern": r"^(\w+\s?)*$"}}}, lambda n: {"a": "é" * n}),
    "counted": ({"properties": {"a": {"pattern": r"[a-q][^u-z]{13}x"}}}, lambda n: {"a": "a" * n}),
    "long text": ({"allOf": [{"type": "string"}] * 100}, lambda n: {"a": "x" * n}),
    "unique": ({"properties": {"a": {"uniqueItems": True}}}, lambda n: {"a": list(range(n))}),
    "multiple": (items({"multipleOf": 1e-308}), repeat(1e308)),
    "large numbers": (items({"multipleOf": 3}), repeat(10**4000)),
    "tree": ({"properties": {"a": {"items": {"$ref": "#"}}}}, repeat({"a": []})),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_checks_data_shortly_or_not_here(name: str) -> None:
    try_schema(*HOSTILE[name])


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {},
            {"type": "string"},
            {"enum": list(range(40))},
            {"pattern": r"(\w|a){9}$"},
            {"multipleOf": 0.01},
            {"uniqueItems": True},
            {"$ref": "#/$defs/x"},
            {"required": ["a", "b"]},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda keyword, parts: {keyword: parts},
            st.sampled_from(["allOf", "anyOf", "oneOf", "prefixItems"]),
            st.lists(inner, min_size=1, max_size=20),
        ),
        st.builds(
            lambda keyword, part: {keyword: part},
            st.sampled_from(
                ["not", "items", "contains", "additionalProperties", "propertyNames", "if"]
            ),
            inner,
        ),
        st.builds(lambda one, other: {"properties": {"a": one, "b": other}}, inner, inner),
    ),
    max_leaves=30,
)
VALUES = st.recursive(
    st.sampled_from([None, 0, -1, 0.1, 10**30, "a", "é" * 20, True]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=30, deadline=None)
@given(SCHEMAS, SCHEMAS, VALUES)
def test_any_schema_checks_data_shortly_or_not_here(
    schema: dict[str, Any], definition: dict[str, Any], value: object
) -> None:
    document = {**items(schema), "additionalProperties": schema, "$defs": {"x": definition}}
    try_schema(document, repeat(value))


TEMPLATES = {
    "open": "{{" * 32_000,
    "open at the end": "{{ a }}" * 200 + "{{" + " " * 15_000,
    "raw": "{% raw %}" * 7_000,
    "spaces": "{{ " + " " * 15_000 + "n }}",
    "spaces in tags": ("{%" + " " * 60) * 1_000 + "%}",
    "path": "{{ " + "n." * 7_000 + "n }}",
    "values": "{{ a }}" * 2_000,
    "long values": "{{ a }}" * 200,
    "ifs": "{% if n %}{{ n }}{% endif %}" * 60,
    "nested ifs": "{% if n %}x" * 2_000 + "{% endif %}" * 2_000,
    "else": "{% if n %}" + "{% else %}" * 5_000,
    "closed": "}}%}" * 16_000,
    "both": "{{%}{%}}" * 8_000,
    "filters": "{{ n " + "| minus: 1 " * 5_000 + "}}",
}
CONTEXT = {"a": "<" * 60_000, "n": 10**14}


def try_template(text: str) -> None:
    def look() -> None:
        try:
            check_size(None, text)
        except InvalidFields:
            return

    timed(look)
    compiled = timed(lambda: compile_quickly(text, is_html=True))
    if compiled is not None:
        timed(lambda: render(compiled))


def render(compiled: Any) -> object:
    try:
        return compiled(CONTEXT)
    except Unsupported:
        return None


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_looked_at_shortly(name: str) -> None:
    try_template(TEMPLATES[name])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["{{", "}}", "{%", "%}", " a ", " n ", "if", "else", "endif", "raw", "|", " ", "x", "-"]
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 5_000),
)
def test_any_template_is_looked_at_shortly(parts: list[str], times: int) -> None:
    try_template("".join(parts) * times)


@pytest.mark.parametrize(
    "value",
    [[[]] * 21_000, ['\\"['] * 8_000, [[[[[[[1]]]]]]] * 4_000, {"a": "[" * 60_000}],
    ids=["lists", "texts", "nested", "brackets"],
)
def test_the_depth_of_data_is_found_shortly(value: object) -> None:
    assert timed(lambda: check_json(value, DATA_LIMIT))


def test_the_depth_of_data_is_exact() -> None:
    for kind in (b"[", b'{"a":'):
        end = b"]" if kind == b"[" else b"}"
        for levels, is_deep in ((63, False), (64, False), (65, True), (500, True)):
            middle = b"1" if kind != b"[" else b""
            value = msgspec.json.decode(kind * levels + middle + end * levels)
            if is_deep:
                with pytest.raises(ValueError, match="at most 64 levels"):
                    check_json([value][0], DATA_LIMIT)
            else:
                assert check_json(value, DATA_LIMIT)
