"""Errors as the API answers them."""

import json
from typing import Any

import pytest

from clarion.errors import (
    ClarionError,
    FieldFault,
    InternalError,
    InvalidFields,
    NotFound,
    Overloaded,
    StorageFull,
    TooManyRequests,
    Unauthenticated,
)
from clarion.http import problems
from clarion.http.docs import list_errors


def body_of(error: ClarionError) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(problems.encode(error, "r-1"))
    return body


def headers_of(error: ClarionError) -> dict[bytes, bytes]:
    return dict(problems.headers_of(error))


def test_a_problem_has_all_its_fields() -> None:
    assert body_of(NotFound("No such key.")) == {
        "type": "/docs/errors#not_found",
        "title": "Not Found",
        "status": 404,
        "detail": "No such key.",
        "code": "not_found",
        "errors": [],
        "request_id": "r-1",
    }


def test_the_fields_of_a_request_are_named_one_by_one() -> None:
    error = InvalidFields(FieldFault("label", "is long"), FieldFault("scopes", "are few"))
    assert body_of(error)["errors"] == [
        {"field": "label", "reason": "is long"},
        {"field": "scopes", "reason": "are few"},
    ]


@pytest.mark.parametrize("kind", list_errors(), ids=lambda kind: kind.code)
def test_every_error_of_the_api_is_a_problem(kind: type[ClarionError]) -> None:
    error = kind(1) if kind is TooManyRequests else kind()
    assert body_of(error)["code"] == kind.code
    assert headers_of(error)[b"content-type"] == b"application/problem+json"


@pytest.mark.parametrize(
    ("error", "seconds"), [(TooManyRequests(7), b"7"), (Overloaded(), b"1"), (StorageFull(), b"10")]
)
def test_a_retryable_error_says_when_to_retry(error: ClarionError, seconds: bytes) -> None:
    assert headers_of(error)[b"retry-after"] == seconds


@pytest.mark.parametrize("error", [InternalError(), NotFound()])
def test_other_errors_do_not(error: ClarionError) -> None:
    assert b"retry-after" not in headers_of(error)


def test_an_unauthenticated_error_names_the_scheme() -> None:
    assert headers_of(Unauthenticated())[b"www-authenticate"] == b"Bearer"


def test_the_cause_of_an_error_stays_inside() -> None:
    error = InternalError()
    error.__cause__ = RuntimeError("password=hunter2")
    assert "hunter2" not in json.dumps(body_of(error))
