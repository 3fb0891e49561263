"""Batches of a request: read item by item, so that a faulty one does not affect the others."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from clarion.access.model import AppCaller
from clarion.errors import FieldFault, InvalidFields, RequestError
from clarion.http.asgi import Request, header
from clarion.http.decoding import decode
from clarion.http.idempotency import Idempotency, fingerprint
from clarion.http.problems import FieldProblem
from clarion.idempotency.model import IdempotencyClaim

BATCH_LIMIT = 1_000
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def read_items(body: bytes, name: str) -> list[msgspec.Raw]:
    """Return the items of `{name: […]}`, or of a list alone, not yet decoded."""
    is_list = body.lstrip()[:1] == b"["
    decoded = decode(_LIST if is_list else _decoder_of(name), body)
    items: list[msgspec.Raw] = decoded if is_list else getattr(decoded, name)
    if not 0 < len(items) <= BATCH_LIMIT:
        raise InvalidFields(FieldFault(name, f"must hold 1 to {BATCH_LIMIT:,} {name}"))
    return items


@cache
def _decoder_of(name: str) -> msgspec.json.Decoder[Any]:
    fields = [(name, list[msgspec.Raw])]
    return msgspec.json.Decoder(msgspec.defstruct("Batch", fields, forbid_unknown_fields=True))


class Refusal(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Why an item was refused: nothing if it was not."""

    code: str | None = None
    """The code of the error, like `invalid_fields`."""
    detail: str | None = None
    """What is wrong, as a sentence."""
    errors: list[FieldProblem] = []
    """The fields that are wrong."""


def explain_refusal(error: RequestError) -> dict[str, Any]:
    """Return the fields of a `Refusal`."""
    errors = [FieldProblem(fault.field, fault.reason) for fault in error.faults]
    return {"code": error.code, "detail": error.detail, "errors": errors}


def claim_key(
    idempotency: Idempotency,
    request: Request,
    caller: AppCaller,
    body: bytes,
    answer: bytes,
    about: str | None = None,
) -> IdempotencyClaim | None:
    """Return the claim of the request's idempotency key, with the answer; None without a key.

    `about` is the user whom the answer is about, if it is one.
    """
    key = header(request.scope, b"idempotency-key")
    if key is None:
        return None
    asked = fingerprint("POST", request.scope["path"], body)
    return idempotency.claim(key, caller, asked, answer, about)
