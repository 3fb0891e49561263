"""One tree of errors, each with a stable code, an HTTP status and whether to retry.

ClarionError
├── RequestError                 the caller can fix it
│   ├── MalformedRequest    400  malformed_request
│   ├── MalformedBody       400  malformed_body
│   ├── MalformedPush       400  malformed_push
│   ├── Unauthenticated     401  unauthenticated
│   ├── SignInFailed        401  sign_in_failed
│   ├── Forbidden           403  forbidden
│   ├── AddressNotAllowed   403  address_not_allowed
│   ├── ConfirmationRequired 403 confirmation_required
│   ├── CrossSiteRequest    403  cross_site_request
│   ├── InsecureTransport   403  insecure_transport
│   ├── MfaRequired         403  mfa_required
│   ├── OriginNotAllowed    403  origin_not_allowed
│   ├── TopicNotOpen        403  topic_not_open
│   ├── NotFound            404  not_found
│   ├── MethodNotAllowed    405  method_not_allowed
│   ├── BodyTimeout         408  body_timeout        (retryable)
│   ├── Conflict            409  conflict
│   ├── EmailTaken          409  email_taken
│   ├── UserDeleted         409  user_deleted
│   ├── DeviceOfAnotherUser 409  device_of_another_user
│   ├── EndpointGone        410  endpoint_gone
│   ├── BodyTooLarge        413  body_too_large
│   ├── NotJson             415  not_json
│   ├── InvalidFields       422  invalid_fields
│   ├── IdempotencyKeyReused 422 idempotency_key_reused
│   ├── TooManyRequests     429  too_many_requests   (retryable)
│   └── HeadTooLarge        431  head_too_large
├── ServiceError                 the caller can retry it
│   ├── Overloaded          503  overloaded          (retryable)
│   ├── ReadTooSlow         503  read_too_slow       (retryable)
│   ├── StoreUnavailable    503  store_unavailable   (retryable)
│   ├── StorageFull         507  storage_full        (retryable)
│   └── InternalError       500  internal_error
├── CommandFailed                a server refused what a command asked for; exit code 1
└── StartError                   the operator can fix it; exit code 2
    ├── SettingsError            every fault of the configuration at once
    └── MigrationError           the database does not match this release
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

import msgspec

T = TypeVar("T")


def count(number: int, noun: str, several: str | None = None) -> str:
    """Return a number and its noun, in the plural if needed: 1 day, 2,000 days, 2 entries."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


class ClarionError(Exception):
    """Unexpected error."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    # Its reason has a line of its own in the log: what fails because of it is logged at debug.
    is_reported: ClassVar[bool] = False

    def __init_subclass__(
        cls, *, code: str | None = None, status: int | None = None, retryable: bool | None = None
    ) -> None:
        """Set what the class statement gives; the rest is inherited."""
        super().__init_subclass__()
        cls.code = cls.code if code is None else code
        cls.status = cls.status if status is None else status
        cls.retryable = cls.retryable if retryable is None else retryable

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (self.__doc__ or "").strip()
        super().__init__(self.detail)


class FieldFault(msgspec.Struct, frozen=True):
    """One field of a request and what is wrong with it."""

    field: str
    reason: str


class RequestError(ClarionError, code="bad_request", status=400):
    """The request is not valid."""

    faults: tuple[FieldFault, ...] = ()


class MalformedRequest(RequestError, code="malformed_request"):
    """The headers of the request are ambiguous; `detail` names the header."""


class MalformedBody(RequestError, code="malformed_body"):
    """The body is not valid JSON."""


class MalformedPush(RequestError, code="malformed_push"):
    """A header of a Web Push message is missing or not valid; `detail` names it."""


class Unauthenticated(RequestError, code="unauthenticated", status=401):
    """Send an API key or a user token as `Authorization: Bearer …`."""


class SignInFailed(RequestError, code="sign_in_failed", status=401):
    """The name, the password, the code or the link is not valid."""


class Forbidden(RequestError, code="forbidden", status=403):
    """The API key or user token does not allow this."""


class AddressNotAllowed(RequestError, code="address_not_allowed", status=403):
    """Administrators may not sign in from this address."""


class ConfirmationRequired(RequestError, code="confirmation_required", status=403):
    """Confirm the password again with `POST /v1/admin/session/confirm`, then repeat the request."""


class CrossSiteRequest(RequestError, code="cross_site_request", status=403):
    """A request with a session must come from this site, with its `Clarion-CSRF-Token`."""


class InsecureTransport(RequestError, code="insecure_transport", status=403):
    """Administrators must use TLS, except on the server's own machine: call the https URL."""


class MfaRequired(RequestError, code="mfa_required", status=403):
    """The sign-in of this administrator is not finished; `detail` says what is missing."""


class OriginNotAllowed(RequestError, code="origin_not_allowed", status=403):
    """The app does not allow pages from this origin to use user tokens."""


class TopicNotOpen(RequestError, code="topic_not_open", status=403):
    """Users can follow only open topics; the app can open the topic, or add the follower itself."""


class NotFound(RequestError, code="not_found", status=404):
    """The path, or the object with this id, does not exist."""


def existing(value: T | None, detail: str) -> T:
    """Return a value that was looked up; `NotFound` with this detail if there is none."""
    if value is None:
        raise NotFound(detail)
    return value


class MethodNotAllowed(RequestError, code="method_not_allowed", status=405):
    """This path does not support this method; the header `Allow` lists the supported ones."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = tuple(sorted(allowed))
        super().__init__()


class BodyTimeout(RequestError, code="body_timeout", status=408, retryable=True):
    """The body was not received in time; the connection is closed."""


class Conflict(RequestError, code="conflict", status=409):
    """The request conflicts with the current state."""


class EmailTaken(RequestError, code="email_taken", status=409):
    """Another user of this app has this email address; addresses are unique within an app."""

    faults = (FieldFault("email", "is the address of another user of this app"),)


class UserDeleted(RequestError, code="user_deleted", status=409):
    """This user was deleted; restore the user before you change it."""


class DeviceOfAnotherUser(RequestError, code="device_of_another_user", status=409):
    """Another user has the device with this token: send its `secret`, or use an API key."""


class EndpointGone(RequestError, code="endpoint_gone", status=410):
    """The device of this push endpoint is no longer valid; do not send to it again."""


class BodyTooLarge(RequestError, code="body_too_large", status=413):
    """The body is larger than this server accepts."""


class NotJson(RequestError, code="not_json", status=415):
    """Send the body as JSON with the header `Content-Type: application/json`, not compressed."""


class InvalidFields(RequestError, code="invalid_fields", status=422):
    """Some fields are missing or not valid; `errors` names them."""

    def __init__(self, *faults: FieldFault) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{fault.field}: {fault.reason}" for fault in faults))


class IdempotencyKeyReused(RequestError, code="idempotency_key_reused", status=422):
    """This Idempotency-Key was used for a different request within the last 24 hours."""


class TooManyRequests(RequestError, code="too_many_requests", status=429, retryable=True):
    """Too many requests; wait as long as `Retry-After` says."""

    def __init__(self, retry_after_s: int, detail: str | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class HeadTooLarge(RequestError, code="head_too_large", status=431):
    """The headers are larger than the server accepts (`--max-header-bytes`)."""


class ServiceError(ClarionError, status=503, retryable=True):
    """The server cannot process the request now."""

    retry_after_s: int = 1


class Overloaded(ServiceError, code="overloaded"):
    """Too many requests are waiting to be processed; nothing was stored."""

    is_reported = True


class ReadTooSlow(ServiceError, code="read_too_slow"):
    """The read took longer than 10 seconds and was ended; ask for less, or try again later."""

    retry_after_s = 10


class StoreUnavailable(ServiceError, code="store_unavailable"):
    """The database did not answer; it is not known whether the request was stored."""

    is_reported = True


class StorageFull(ServiceError, code="storage_full", status=507):
    """The disk of the server is full; nothing was stored."""

    retry_after_s = 10
    is_reported = True


class InternalError(ServiceError, code="internal_error", status=500, retryable=False):
    """Unexpected error in the server; its log has the cause, with the request id."""


class CommandFailed(ClarionError, code="command_failed"):
    """The server refused what the command asked for."""


class StartError(ClarionError, code="cannot_start"):
    """Clarion cannot start."""


class SettingsError(StartError, code="settings"):
    """Some settings are not valid."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class MigrationError(StartError, code="migration"):
    """The database does not match this release of Clarion."""
