"""Response bodies: a view takes its fields from an object of the model, by name."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Self, get_args, get_type_hints

import msgspec

from clarion.clock import to_rfc3339

_TIME = msgspec.Meta(extra_json_schema={"format": "date-time"})
# Milliseconds in the model, RFC 3339 in UTC on the wire.
Timestamp = Annotated[str, _TIME]


class View(msgspec.Struct, kw_only=True):
    """A response body, or a part of one."""

    @classmethod
    def of(cls, source: object, **given: Any) -> Self:
        """Return the view of an object; fields that the object does not have are given by name."""
        for name, is_time in _fields_of(cls):
            if name not in given:
                value = getattr(source, name)
                given[name] = to_rfc3339(value) if is_time and value is not None else value
        return cls(**given)


@cache
def _fields_of(view: type[View]) -> tuple[tuple[str, bool], ...]:
    hints = get_type_hints(view, include_extras=True)
    return tuple((name, _is_time(hints[name])) for name in view.__struct_fields__)


def _is_time(hint: Any) -> bool:
    return _TIME in getattr(hint, "__metadata__", ()) or any(map(_is_time, get_args(hint)))
