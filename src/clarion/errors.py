"""One tree of errors, each with a stable code, an HTTP status and whether to retry.

ClarionError
├── RequestError                 the caller can fix it
│   ├── MalformedBody       400  malformed_body
│   ├── Unauthenticated     401  unauthenticated
│   ├── Forbidden           403  forbidden
│   ├── NotFound            404  not_found
│   ├── MethodNotAllowed    405  method_not_allowed
│   ├── Conflict            409  conflict
│   ├── BodyTooLarge        413  body_too_large
│   ├── InvalidFields       422  invalid_fields
│   ├── IdempotencyKeyReused 422 idempotency_key_reused
│   └── TooManyRequests     429  too_many_requests   (retryable)
├── ServiceError                 the caller can retry it
│   ├── Overloaded          503  overloaded          (retryable)
│   ├── StoreUnavailable    503  store_unavailable   (retryable)
│   ├── StorageFull         507  storage_full        (retryable)
│   └── InternalError       500  internal_error
├── CommandFailed                a server refused what a command asked for; exit code 1
└── StartError                   the operator can fix it; exit code 2
    ├── SettingsError            every fault of the configuration at once
    └── MigrationError           the database does not match this release
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


class ClarionError(Exception):
    """Unexpected error."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (self.__doc__ or "").strip()
        super().__init__(self.detail)


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One field of a request and what is wrong with it."""

    field: str
    reason: str


class RequestError(ClarionError):
    """The request is not valid."""

    code = "bad_request"
    status = 400


class MalformedBody(RequestError):
    """The body is not valid JSON."""

    code = "malformed_body"


class Unauthenticated(RequestError):
    """Send an API key or a user token as `Authorization: Bearer …`."""

    code = "unauthenticated"
    status = 401


class Forbidden(RequestError):
    """The API key or user token does not allow this."""

    code = "forbidden"
    status = 403


class NotFound(RequestError):
    """The path, or the object with this id, does not exist."""

    code = "not_found"
    status = 404


class MethodNotAllowed(RequestError):
    """This path does not support this method."""

    code = "method_not_allowed"
    status = 405


class Conflict(RequestError):
    """The request conflicts with the current state."""

    code = "conflict"
    status = 409


class BodyTooLarge(RequestError):
    """The body is larger than this server accepts."""

    code = "body_too_large"
    status = 413


class InvalidFields(RequestError):
    """Some fields are missing or not valid; `errors` names them."""

    code = "invalid_fields"
    status = 422

    def __init__(self, *faults: FieldFault) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{fault.field}: {fault.reason}" for fault in faults))


class IdempotencyKeyReused(RequestError):
    """This Idempotency-Key was used for a different request within the last 24 hours."""

    code = "idempotency_key_reused"
    status = 422


class TooManyRequests(RequestError):
    """Too many requests; wait as long as `Retry-After` says."""

    code = "too_many_requests"
    status = 429
    retryable = True

    def __init__(self, retry_after_s: int, detail: str | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class ServiceError(ClarionError):
    """The server cannot process the request now."""

    status = 503
    retryable = True
    retry_after_s: int = 1


class Overloaded(ServiceError):
    """Too many requests are waiting to be processed; nothing was stored."""

    code = "overloaded"


class StoreUnavailable(ServiceError):
    """The database did not answer; whether the request was stored is not known."""

    code = "store_unavailable"


class StorageFull(ServiceError):
    """The disk of the server is full; nothing was stored."""

    code = "storage_full"
    status = 507
    retry_after_s = 10


class InternalError(ServiceError):
    """Unexpected error in the server; its log has the cause under the request id."""

    code = "internal_error"
    status = 500
    retryable = False


class CommandFailed(ClarionError):
    """The server refused what the command asked for."""

    code = "command_failed"


class StartError(ClarionError):
    """Clarion cannot start."""

    code = "cannot_start"


class SettingsError(StartError):
    """Some settings are not valid."""

    code = "settings"

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class MigrationError(StartError):
    """The database does not match this release of Clarion."""

    code = "migration"
