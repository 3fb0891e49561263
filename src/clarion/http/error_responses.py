"""The errors that each operation can answer, for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from clarion.errors import (
    BodyTimeout,
    BodyTooLarge,
    ClarionError,
    Conflict,
    EndpointGone,
    FieldFault,
    Forbidden,
    InternalError,
    InvalidFields,
    MalformedBody,
    MalformedPush,
    NotFound,
    NotJson,
    Overloaded,
    StorageFull,
    TooManyRequests,
    Unauthenticated,
)
from clarion.http.docs import list_errors
from clarion.http.problems import MEDIA_TYPE, Problem, describe
from clarion.http.schemas import Schemas

# Administrators get a 404 if the app that they name does not exist.
_ALWAYS = (
    MalformedBody,
    Unauthenticated,
    Forbidden,
    NotFound,
    TooManyRequests,
    InternalError,
    Overloaded,
)
_OF_NO_APP = ("/v1/me/", "/v1/admin/", "/v1/apps", "/v1/caller")
_WITH_BODY = (BodyTimeout, BodyTooLarge, NotJson, InvalidFields)
# Answered by paths that are not in the document.
_ELSEWHERE = (MalformedPush, EndpointGone)
_RETRY_AFTER = {
    "description": "After how many seconds to try again.",
    "schema": {"type": "integer", "minimum": 1},
}
_REQUEST_ID = "0199b1f4-8c1e-7d3a-9a4e-2f6d1c0b5a77"
_EXAMPLES = {
    error.status: msgspec.to_builtins(describe(error, _REQUEST_ID))
    for error in (
        MalformedBody(),
        Unauthenticated(),
        Forbidden(),
        NotFound(),
        BodyTimeout(),
        Conflict(),
        BodyTooLarge(),
        NotJson(),
        InvalidFields(FieldFault("recipient", "is required")),
        TooManyRequests(1),
        InternalError(),
        Overloaded(),
        StorageFull(),
    )
}


class ErrorResponses:
    """Names the errors of operations, and describes each status once."""

    def __init__(self) -> None:
        self._problem: dict[str, Any] = {}
        self._statuses: set[int] = set()

    def add(
        self,
        path: str,
        method: str,
        operation: dict[str, Any],
        declared: Sequence[type[ClarionError]] = (),
    ) -> None:
        """Add to an operation the errors that it can answer."""
        errors = (*_list_expected(path, method, operation), *declared)
        for status in sorted({error.status for error in errors}):
            self._statuses.add(status)
            name = _name(status)
            operation["responses"][str(status)] = {"$ref": f"#/components/responses/{name}"}

    def want_schema(self, schemas: Schemas) -> None:
        """Ask for the schema of a problem."""
        schemas.want(self._problem, Problem)

    @property
    def components(self) -> dict[str, Any]:
        """Return a response for each status; each names the codes that it can have."""
        return {_name(status): self._respond(status) for status in sorted(self._statuses)}

    def _respond(self, status: int) -> dict[str, Any]:
        errors = [each for each in list_errors() if each.status == status]
        known = [each for each in errors if each not in _ELSEWHERE]
        content = {**self._problem, "example": _EXAMPLES[status]}
        response = {"description": _explain(known), "content": {MEDIA_TYPE: content}}
        if any(error.retryable for error in known) and status != HTTPStatus.REQUEST_TIMEOUT:
            response["headers"] = {"Retry-After": _RETRY_AFTER}
        return response


def _list_expected(
    path: str, method: str, operation: dict[str, Any]
) -> Iterator[type[ClarionError]]:
    """Yield the errors that follow from an operation's parameters and body."""
    yield from _ALWAYS
    parameters = {each["in"] for each in operation.get("parameters", ())}
    names = {each["name"] for each in operation.get("parameters", ())}
    if "requestBody" in operation:
        yield from _WITH_BODY
    # An administrator has to name an app, where an operation is about one.
    if parameters & {"path", "query"} or not path.startswith(_OF_NO_APP):
        yield InvalidFields
    if "Idempotency-Key" in names:
        yield InvalidFields
        yield Conflict
    if method != "get":
        yield StorageFull


def _name(status: int) -> str:
    return HTTPStatus(status).phrase.title().replace(" ", "").replace("-", "")


def _explain(errors: Iterable[type[ClarionError]]) -> str:
    return "\n".join(f"* `{error.code}`: {(error.__doc__ or '').strip()}" for error in errors)
