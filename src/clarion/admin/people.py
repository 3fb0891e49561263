"""Users for pages: found by the text of a search field, and shown with name and id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clarion.access.model import Scope
from clarion.admin.operations import Refused
from clarion.admin.permissions import may_open
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.fields import is_user_id

_NAMES_LIMIT = 100
_NAME_LENGTH = 200
_SERVER_FAULT = 500


async def read_names(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of users by their ids; none for a role that may not see users."""
    wanted = sorted({each for each in ids if each and is_user_id(each)})[:_NAMES_LIMIT]
    app_id = visit.parts.get("app_id")
    if not wanted or not may_open(Scope.USERS_READ, visit.caller, app_id):
        return {}
    found = await visit.get("users", ids=",".join(wanted), limit=_NAMES_LIMIT)
    return {each["id"]: each["name"] for each in found["items"] if each["name"]}


async def find_user(visit: Visit, user_id: str) -> dict[str, Any] | None:
    """Return the user with an id, or None."""
    if not is_user_id(user_id):
        return None
    try:
        return await visit.get("users", user_id)
    except (Refused, NotFound) as error:
        if isinstance(error, Refused) and error.problem.code != NotFound.code:
            raise
        return None


async def find_one(visit: Visit, wanted: str) -> dict[str, Any] | None:
    """Return the user with this id, or else the only one with this email address or name."""
    people = await find_people(visit, wanted, 2)
    is_clear = len(people) == 1 or (people and people[0]["id"] == wanted)
    return people[0] if is_clear else None


def search_by(wanted: str) -> dict[str, str]:
    """Return the filter of the list of users: an email address, or the beginning of a name."""
    if "@" in wanted:
        return {"email": wanted}
    # The list ignores capitals of A to Z alone, and names begin with one.
    return {"name": wanted if wanted[:1].isascii() else wanted[:1].upper() + wanted[1:]}


async def find_people(visit: Visit, wanted: str, limit: int) -> list[dict[str, Any]]:
    """Return the users that a text may mean: the one with this id first, then by email or name."""
    exact = await find_user(visit, wanted)
    found = await _search(visit, wanted, limit)
    others = [each for each in found if each["id"] != wanted]
    return [exact, *others] if exact else others


async def _search(visit: Visit, wanted: str, limit: int) -> list[dict[str, Any]]:
    if not wanted.isprintable() or len(wanted) > _NAME_LENGTH or not wanted.strip():
        return []
    found: list[dict[str, Any]] = (await visit.get("users", limit=limit, **search_by(wanted)))[
        "items"
    ]
    return found
