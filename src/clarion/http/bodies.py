"""Request bodies, and checks of their fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from clarion.errors import FieldFault, InvalidFields

UNKNOWN_FIELD = "there is no such field"
# By field. A check raises `ValueError` with the reason, or `InvalidFields` for fields inside its
# own.
Checks: TypeAlias = Mapping[str, Callable[[], object]]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body: an unknown field is an error, not ignored."""

    def checks(self) -> Checks:
        """Return the checks of fields that need nothing else than the body."""
        return {}


def leave_out(faults: Iterable[FieldFault], known: Collection[FieldFault]) -> Iterable[FieldFault]:
    """Return the faults that are in other parts of the body than the known ones."""
    if not known:
        return faults
    places = list(map(_find_place, known))
    return [each for each in faults if not any(_overlap(_find_place(each), at) for at in places)]


def _find_place(fault: FieldFault) -> list[str]:
    """Return the names that lead to a fault. A list counts as one: its items may be others now."""
    return fault.field.partition("[")[0].split(".")


def _overlap(one: list[str], other: list[str]) -> bool:
    """Return whether one of two places is within the other."""
    return all(name == its for name, its in zip(one, other, strict=False))


def has_faults(faults: Iterable[FieldFault], *fields: str) -> bool:
    """Return whether one of these fields is wrong; a misspelt field next to them is not."""
    return any(
        _find_place(each)[0] in fields and not each.reason.startswith(UNKNOWN_FIELD)
        for each in faults
    )


def collect(checks: Checks) -> dict[str, Any]:
    """Run a check for each field and return their results; `InvalidFields` names all faults."""
    values, faults = {}, list[FieldFault]()
    for field, check in checks.items():
        try:
            values[field] = check()
        except ValueError as error:
            faults.append(FieldFault(field, str(error)))
        except InvalidFields as error:
            faults += error.faults
    if faults:
        raise InvalidFields(*faults)
    return values


def given_checks(
    body: Body, check: Callable[[str, Any], object]
) -> dict[str, Callable[[], object]]:
    """Return for `collect` a check of each field that a body gives: not of those left out."""
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    return {
        name: partial(check, name, value) for name, value in given.items() if value is not UNSET
    }
