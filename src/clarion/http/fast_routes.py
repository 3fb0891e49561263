"""Routes that plain functions answer in front of the framework, and how each is documented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from clarion.http.asgi import Endpoint


class Parameter(NamedTuple):
    """An optional parameter of a request."""

    name: str
    place: Literal["header", "query"]
    type: Any
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What OpenAPI says of a route; `body` and `response` are types that msgspec knows."""

    id: str
    summary: str
    description: str
    tag: str
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    response: Any
    response_description: str
    media_type: str = "application/json"


class FastRoute(NamedTuple):
    """A method and path, the function that answers them, and the documentation, if any."""

    method: str
    path: str
    endpoint: Endpoint
    operation: Operation | None = None
