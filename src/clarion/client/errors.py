"""Why a request did not succeed."""

from __future__ import annotations

import msgspec

# The code of an answer that is none of Clarion.
UNKNOWN = "unknown"
_TOO_MANY = 429
_SERVER_FAULT = 500


class FieldFault(msgspec.Struct, frozen=True):
    """One field of a request and what it must be."""

    field: str
    reason: str


class ApiError(Exception):
    """The server's answer is an error; as text, one line with all that it says.

    `422 invalid_fields: type: there is no such type`
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: tuple[FieldFault, ...] = (),
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        faults = (f"{each.field}: {each.reason}" for each in errors)
        said = [detail, *(each for each in faults if each not in detail)]
        super().__init__(" ".join(f"{status} {code}: {'; '.join(said)}".split()))
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == _TOO_MANY or self.status >= _SERVER_FAULT


class NotReached(Exception):
    """There was no answer in time, also not to retries. The request may have arrived."""


class _Problem(msgspec.Struct):
    detail: str = ""
    code: str = UNKNOWN
    errors: tuple[FieldFault, ...] = ()
    request_id: str | None = None


def read_error(status: int, retry_after: str | None, body: bytes) -> ApiError:
    """Return the error that an answer stands for."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except msgspec.DecodeError:
        problem = _Problem(detail=f"HTTP {status}, not an answer of Clarion")
    wait_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return ApiError(
        status,
        problem.code,
        problem.detail,
        errors=problem.errors,
        request_id=problem.request_id,
        retry_after_s=wait_s,
    )
