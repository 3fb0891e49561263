"""Request bodies, and checks of their fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from clarion.errors import FieldFault, InvalidFields

# By field. A check raises `ValueError` with the reason, or `InvalidFields` for fields inside its
# own.
Checks: TypeAlias = Mapping[str, Callable[[], object]]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body: an unknown field is an error, not ignored."""

    def checks(self) -> Checks:
        """Return the checks of fields that need nothing else than the body."""
        return {}


def leave_out(faults: Iterable[FieldFault], known: Collection[FieldFault]) -> Iterable[FieldFault]:
    """Return the faults that are in other fields of the body than the known ones."""
    if not known:
        return faults
    roots = set(map(_find_root, known))
    return [each for each in faults if _find_root(each) not in roots]


def _find_root(fault: FieldFault) -> str:
    return fault.field.partition(".")[0].partition("[")[0]


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
