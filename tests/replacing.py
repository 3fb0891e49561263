"""A copy of a value with changes, whether it is a struct or a dataclass."""

import dataclasses
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def replace(value: T, **changes: Any) -> T:
    copy: Any = msgspec.structs if isinstance(value, msgspec.Struct) else dataclasses
    changed: T = copy.replace(value, **changes)
    return changed
