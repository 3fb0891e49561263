"""Parameters of handlers that several slices use."""

from __future__ import annotations

from typing import Annotated

from litestar.params import HeaderParameter, Parameter

from clarion.http.shapes import IDEMPOTENCY_KEY, PAGE_LIMIT, IdempotencyKeyText

Limit = Annotated[
    int,
    Parameter(
        description="Items in a page, 1 to 100.",
        schema_extra={"minimum": 1, "maximum": PAGE_LIMIT},
    ),
]
# Not `datetime`: Litestar would take `?since=0.5` for one.
Moment = Annotated[
    str | None, Parameter(description="A time (RFC 3339).", schema_extra={"format": "date-time"})
]
After = Annotated[str | None, Parameter(description="The value of `next` in the previous page.")]
IdempotencyKey = Annotated[
    IdempotencyKeyText | None,
    HeaderParameter(name=IDEMPOTENCY_KEY.name, description=IDEMPOTENCY_KEY.description),
]
