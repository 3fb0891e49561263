"""Reading the fields of a form, and showing a form again with its errors."""

from __future__ import annotations

from typing import Any

import msgspec

from clarion.admin.operations import Query, Refused
from clarion.admin.people import read_names
from clarion.admin.visit import Visit
from clarion.errors import ConfirmationRequired, FieldFault, InvalidFields
from clarion.http import problems
from clarion.http.asgi import Response

_SERVER_FAULT = 500


async def show_again(visit: Visit, template: str, refused: Refused, **values: Any) -> Response:
    """Show a form again, with what is wrong.

    The dashboard handles errors that are not the form's fault, and asks for the password if needed.
    """
    problem = refused.problem
    if problem.status >= _SERVER_FAULT or problem.code == ConfirmationRequired.code:
        raise refused
    return await visit.render(
        template, status=problem.status, problem=problem, errors=refused.fields, **values
    )


async def show_list(
    visit: Visit, template: str, *parts: str, query: Query, **values: Any
) -> Response:
    """Show the page of a list that a filter selects, or what is wrong with the filter.

    It includes the names of the users that the items refer to.
    """
    try:
        page = await visit.get_page(*parts, **query)
    except Refused as refused:
        empty: dict[str, Any] = {"items": [], "next": None, "after": visit.query.get("after")}
        return await show_again(visit, template, refused, **{"names": {}, **empty, **values})
    names = await read_names(visit, [each.get("user_id") for each in page["items"]])
    return await visit.render(template, **{"names": names, **page, **values})


async def check_unused(
    visit: Visit, *parts: str, name: str, field: str, rule: str, what: str
) -> None:
    """Raise the refusal of a name that no object can have, or that another one has."""
    if not name or "/" in name:
        raise fault(visit, field, rule)
    try:
        await visit.get(*parts, name)
    except Refused:
        return
    raise fault(visit, field, f"is {what} already")


def fault(visit: Visit, field: str, reason: str) -> Refused:
    """Return the refusal of a field that no operation can be called with."""
    error = InvalidFields(FieldFault(field, reason))
    return Refused(problems.describe(error, visit.request.id))


def read_object(visit: Visit, field: str, text: str | None = None) -> dict[str, Any] | None:
    """Return the JSON object that was written into a field; None if it is empty."""
    text = (visit.field(field) if text is None else text).strip()
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise fault(visit, field, f"must be a JSON object ({error})") from error


def read_number(visit: Visit, field: str) -> int | None:
    """Return a whole number; None if the field is empty."""
    text = visit.field(field).strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise fault(visit, field, "must be a whole number") from error


def read_lines(visit: Visit, field: str) -> list[str]:
    """Return what stands in the lines of a field, without empty ones."""
    return [line.strip() for line in visit.field(field).splitlines() if line.strip()]


def read_words(visit: Visit, field: str) -> list[str]:
    """Return the words of a field, separated by spaces or commas."""
    return visit.field(field).replace(",", " ").split()


def read_text(visit: Visit, field: str) -> str:
    """Return a text as it was stored: browsers send each end of a line as two characters."""
    return visit.field(field).replace("\r\n", "\n")
