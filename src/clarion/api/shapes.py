"""The shapes of the API that more than one noun uses."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from clarion.errors import FieldFault, InvalidFields

if TYPE_CHECKING:
    from litestar import Request

    from clarion.model import Caller

T = TypeVar("T")
PAGE_DEFAULT = 20
PAGE_LIMIT = 100
IDEMPOTENCY_KEY_LENGTH = 255
IDEMPOTENCY_MS = 24 * 3600 * 1000


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body: an unknown field is an error, not ignored."""


class Items(msgspec.Struct, Generic[T]):
    """A page of a list; `next` is the cursor for `?after=`, or null at the end."""

    items: list[T]
    next: str | None


def caller_of(request: Request[object, object, object]) -> Caller:  # type: ignore[type-var]
    """Return who calls; the front has asked."""
    caller: Caller = request.scope["clarion.caller"]  # type: ignore[typeddict-item]
    return caller


def check_limit(limit: int) -> int:
    """Return the page size if it is one."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidFields(FieldFault("limit", f"must be from 1 to {PAGE_LIMIT}"))
    return limit


def check_idempotency_key(key: str | None) -> str | None:
    """Return the key if it is one."""
    if key is not None and not 0 < len(key) <= IDEMPOTENCY_KEY_LENGTH:
        reason = f"must have 1 to {IDEMPOTENCY_KEY_LENGTH} characters"
        raise InvalidFields(FieldFault("Idempotency-Key", reason))
    return key


def fingerprint(method: str, path: str, body: bytes) -> bytes:
    """Return what tells one request from another under the same idempotency key."""
    return hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).digest()
