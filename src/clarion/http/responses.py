"""Further responses of handlers, for the OpenAPI document."""

from __future__ import annotations

from litestar.openapi import ResponseSpec


def describe_response(body_type: type, description: str) -> ResponseSpec:
    """Return the description, without the examples that Litestar would make up."""
    return ResponseSpec(body_type, description=description, generate_examples=False)
