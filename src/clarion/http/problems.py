"""Errors as `application/problem+json`, from every endpoint except APNs."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from clarion.errors import (
    BodyTimeout,
    ClarionError,
    HeadTooLarge,
    MalformedRequest,
    MethodNotAllowed,
    RequestError,
    ServiceError,
    TooManyRequests,
)

SERVER_FAULT = 500
MEDIA_TYPE = "application/problem+json"
_encode = msgspec.json.Encoder().encode


class FieldProblem(msgspec.Struct):
    """A field of the request and what is wrong with it."""

    field: str
    """The path of the field, like `recipient.user_ids[3]`, or the name of the parameter."""
    reason: str
    """What is wrong with it, and what is allowed."""


class Problem(msgspec.Struct):
    """An error of the API (RFC 9457)."""

    type: str
    """A link to the explanation of the code, relative to this server."""
    title: str
    """The name of the HTTP status."""
    status: int
    """The HTTP status."""
    detail: str
    """What is wrong, as a sentence for developers."""
    code: str
    """A stable word for programs, like `invalid_fields`."""
    errors: list[FieldProblem]
    """The fields of the request that are wrong; empty if the error is not about fields."""
    request_id: str
    """The id of the request, which is also in the log of the server."""


def describe(error: ClarionError, request_id: str) -> Problem:
    """Return the problem for an error. Causes, values and stack go to the log only."""
    faults = error.faults if isinstance(error, RequestError) else ()
    return Problem(
        type=f"/docs/errors#{error.code}",
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.detail,
        code=error.code,
        errors=[FieldProblem(fault.field, fault.reason) for fault in faults],
        request_id=request_id,
    )


def encode(error: ClarionError, request_id: str) -> bytes:
    """Return the body of the response."""
    return _encode(describe(error, request_id)) + b"\n"


def headers_of(error: ClarionError) -> list[tuple[bytes, bytes]]:
    """Return the headers of the response."""
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    if isinstance(error, (TooManyRequests, ServiceError)) and error.retryable:
        headers.append((b"retry-after", str(error.retry_after_s).encode()))
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if isinstance(error, (BodyTimeout, HeadTooLarge, MalformedRequest)):
        headers.append((b"connection", b"close"))
    return headers
