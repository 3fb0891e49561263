"""What a JSON Schema can cost, counted before it is compiled: references multiply it.

A validator follows every reference each time, so 29 definitions that each refer twice to the one
before are half a billion checks. A schema without cycles checks each value of the data with each
of its subschemas at most once: its cost times the size of the data is a limit for the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

# With references followed. Real schemas have tens to hundreds of subschemas.
COST_LIMIT = 10_000
# Of subschemas and references inside each other: the validator takes stack for each of them.
DEPTH_LIMIT = 100
# Compiled they take up to 1 MiB each.
PATTERNS_LIMIT = 50

_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_SINGLE = frozenset(
    """
    not if then else items additionalItems additionalProperties propertyNames contains
    unevaluatedItems unevaluatedProperties contentSchema
    """.split()  # noqa: SIM905 - as a literal it takes a line for each name
)
# They apply to the same value, not to a part of it: a cycle of these alone never ends.
_IN_PLACE = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref"}
)
# These resolve names at run time, or against another base than the document.
_UNSUPPORTED = frozenset(
    {"$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$anchor"}
)
# What these cost is known. `format` is only a note, except in old drafts.
_PLAIN = frozenset(
    """
    $schema $id $comment $defs definitions title description default examples deprecated readOnly
    writeOnly format type enum const required minItems maxItems uniqueItems minContains maxContains
    minProperties maxProperties minLength maxLength pattern minimum maximum exclusiveMinimum
    exclusiveMaximum multipleOf dependentRequired
    """.split()  # noqa: SIM905 - as a literal it takes a line for each name
)
_KNOWN = _PLAIN | (_LISTS | _MAPS | _SINGLE | {"$ref"}) - {
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "dependencies",
}
# The drafts in which `format` checks nothing.
_NEW_DRAFTS = ("2019-09", "2020-12")
_REPEATED = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
# In bytes of JSON for one unit: a long list of values is compared one by one.
_ENUM_UNIT_BYTES = 2
# Comparing numbers exactly takes fractions of big integers: up to 60 µs for a number.
_MULTIPLE_OF = 400
_UNIQUE = 10
# A class like \w has hundreds of ranges.
_CLASS = 50
# What a pattern needs for each of its states and each character is less than a subschema needs.
_CHEAPER = 8


class OverBudget(ValueError):
    """The schema costs too much, or its cost is unknown; the message names the place."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of a schema; `is_known` if the effort is at most this times the size of the data."""

    total: int
    is_known: bool


def measure(document: Mapping[str, object], limit: int = COST_LIMIT) -> Cost:
    """Return the cost of a schema; `OverBudget` if it is above a limit."""
    scale = _Scale(document, limit)
    total = scale.weigh(document, "#", _Way())
    return Cost(total, is_known=scale.is_known and not _checks_formats(document))


class _Way(msgspec.Struct, frozen=True):
    """How the walk came to a place: its depth, and how many steps went into a part of the data."""

    depth: int = 0
    parts: int = 0

    def step(self, keyword: str) -> _Way:
        return _Way(self.depth + 1, self.parts + (keyword not in _IN_PLACE))


@dataclass(slots=True)
class _Scale:
    """Weighs each subschema once; what refers to it adds its weight."""

    document: Mapping[str, object]
    limit: int
    is_known: bool = True
    _patterns: int = 0
    _visited: int = 0
    _weights: dict[int, int] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)  # on the way here → parts at that place

    def weigh(self, schema: object, place: str, way: _Way) -> int:
        if not isinstance(schema, dict):
            return 1  # `true` and `false` are schemas; the compiler refuses the rest
        key = id(schema)
        if key in self._open:
            return self._recur(place, self._open[key] == way.parts)
        if key not in self._weights:
            self._check_depth(place, way)
            self._open[key] = way.parts
            self._weights[key] = self._weigh_keywords(schema, place, way)
            del self._open[key]
        return self._weights[key]

    def _weigh_keywords(self, schema: dict[str, object], place: str, way: _Way) -> int:
        total = 1
        for keyword, value in schema.items():
            total += self._weigh_plain(keyword, value, place, way)
            for step, part in _parts(keyword, value):
                inner = way.step(keyword)
                if keyword == "$ref":
                    total += self.weigh(*self._resolve(part, f"{place}/$ref"), inner)
                else:
                    total += self.weigh(part, f"{place}/{step}", inner)
                self._check_total(total, place)
        self._check_total(total, place)
        return total

    def _weigh_plain(self, keyword: str, value: object, place: str, way: _Way) -> int:
        if keyword in _UNSUPPORTED or (keyword == "$id" and way.depth):
            raise OverBudget(f"{place}: {keyword} is not supported; use $ref with a JSON pointer")
        self.is_known = self.is_known and keyword in _KNOWN
        match keyword:
            case "enum" | "const" | "required" | "dependentRequired":
                return len(msgspec.json.encode(value)) // _ENUM_UNIT_BYTES
            case "pattern":
                return self._weigh_pattern(value, place)
            case "patternProperties" if isinstance(value, dict):
                return sum(self._weigh_pattern(each, place) for each in value)
            case "multipleOf":
                return _MULTIPLE_OF
            case "uniqueItems":
                return _UNIQUE
            case _:
                return 0

    def _weigh_pattern(self, pattern: object, place: str) -> int:
        self._patterns += 1
        if self._patterns > PATTERNS_LIMIT:
            raise OverBudget(f"{place}: a schema can have at most {PATTERNS_LIMIT} patterns")
        text = str(pattern)
        weight = len(text) + _CLASS * text.count("\\")
        for least, most in _REPEATED.findall(text):
            weight = min(weight * max(int(least), int(most or 0), 1), _CHEAPER * self.limit)
        return weight // _CHEAPER

    def _resolve(self, reference: object, place: str) -> tuple[object, str]:
        text = str(reference)
        if text != "#" and not text.startswith("#/"):
            raise OverBudget(f"{place}: must be a JSON pointer into this schema, like #/$defs/name")
        found: object = self.document
        for step in unquote(text).split("/")[1:]:
            found = _look_up(found, step.replace("~1", "/").replace("~0", "~"))
        if found is None:
            raise OverBudget(f"{place}: there is no {text[:100]} in this schema")
        return found, text

    def _recur(self, place: str, is_endless: bool) -> int:  # noqa: FBT001 - internal
        if is_endless:
            raise OverBudget(f"{place}: refers to itself for the same value, without end")
        self.is_known = False
        return 1

    def _check_depth(self, place: str, way: _Way) -> None:
        self._visited += 1
        if way.depth > DEPTH_LIMIT:
            raise OverBudget(f"{place}: is more than {DEPTH_LIMIT} subschemas or references deep")
        self._check_total(self._visited, place)

    def _check_total(self, total: int, place: str) -> None:
        if total > self.limit:
            raise OverBudget(
                f"{place}: costs more than {self.limit:,} subschemas, with its references followed"
            )


def _parts(keyword: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the subschemas of a keyword, each with the steps to it."""
    if keyword == "$ref":
        yield keyword, value
    elif isinstance(value, list) and keyword in _LISTS | {"items"}:
        for index, each in enumerate(value):
            yield f"{keyword}/{index}", each
    elif isinstance(value, dict) and keyword in _MAPS:
        for name, each in value.items():
            yield f"{keyword}/{name[:100].replace('~', '~0').replace('/', '~1')}", each
    elif keyword in _SINGLE:
        yield keyword, value


def _look_up(found: object, step: str) -> object:
    if isinstance(found, dict):
        return found.get(step)
    if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
        return found[int(step)]
    return None


def _checks_formats(document: Mapping[str, object]) -> bool:
    draft = document.get("$schema")
    return draft is not None and not any(each in str(draft) for each in _NEW_DRAFTS)
