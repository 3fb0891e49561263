"""Traces: the steps of an event or a push, from the request to the device, on all nodes.

They are off unless the environment configures an exporter. When they are off, `current` is None
everywhere, and nothing else is done. The context of a step is a string in the form of W3C Trace
Context: it is stored with waiting rows, and sent with requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from types import MappingProxyType
from typing import Protocol

# No text of a user or provider: ids, names defined by Clarion, numbers.
Attribute = str | int | bool | Sequence[str]
Attributes = Mapping[str, Attribute]
NONE: Attributes = MappingProxyType({})

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE = re.compile(rb"[!-~]+([ \t]*[!-~]+)*")
_TRACESTATE_BYTES = 512
_ID = slice(3, 35)


class StepKind(Enum):
    """The relation of a step to the step before it."""

    SERVER = "server"  # answers a request
    CLIENT = "client"  # makes one
    CONSUMER = "consumer"  # takes what was stored
    INTERNAL = "internal"


class Span(Protocol):
    """A running step."""

    @property
    def context(self) -> str:
        """What the next step needs: `traceparent`, and after a space `tracestate`, if any."""

    def start(
        self, name: str, kind: StepKind = StepKind.INTERNAL, attributes: Attributes = NONE
    ) -> Span:
        """Start a step of this step."""

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Attributes) -> None: ...

    def fail(self, error: str) -> None:
        """Mark the step as failed. The text is the name of an error, never its message."""

    def end(self) -> None: ...


class Tracer(Protocol):
    """Starts the steps that follow no step of this task."""

    @property
    def is_on(self) -> bool:
        """Whether anything is recorded: otherwise nothing needs to be started."""

    def start(
        self,
        name: str,
        parent: str | None,
        kind: StepKind,
        attributes: Attributes = NONE,
        *,
        age_ms: int = 0,
    ) -> Span:
        """Start a step after the one with this context, which may be of another node.

        With `age_ms`, the step began that many milliseconds ago.
        """

    async def close(self) -> None:
        """Export waiting spans, for a few seconds at most."""


# The step that this task is in; None if it is not traced.
current: ContextVar[Span | None] = ContextVar("current_span", default=None)
# The contexts of the events that this task works on, by event id.
stored: ContextVar[Mapping[str, str]] = ContextVar("stored_contexts", default=MappingProxyType({}))


def find_context() -> str | None:
    """Return the context of this task's step, to be stored with the rows that it creates."""
    span = current.get()
    return None if span is None else span.context


@contextmanager
def entered(span: Span) -> Iterator[Span]:
    """Run a block as a step, and end it; an exception is noted by its type."""
    token = current.set(span)
    try:
        yield span
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        current.reset(token)
        span.end()


def read_context(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the context that a request was sent with; None if it has none, or an invalid one."""
    given = headers.get(b"traceparent")
    parent = _TRACEPARENT.fullmatch(given) if given else None
    if parent is None or not _is_valid(parent):
        return None
    context = b"00-%b-%b-%b" % (parent[2], parent[3], b"01" if int(parent[4], 16) & 1 else b"00")
    state = headers.get(b"tracestate", b"").strip()
    if 0 < len(state) <= _TRACESTATE_BYTES and _TRACESTATE.fullmatch(state):
        context += b" " + state
    return context.decode()


def _is_valid(parent: re.Match[bytes]) -> bool:
    """Whether a version is possible, and ends where it must, and no id is zero."""
    is_version = parent[1] != b"ff" and (parent[1] != b"00" or parent[5] is None)
    return is_version and bool(parent[2].strip(b"0")) and bool(parent[3].strip(b"0"))


def id_of(context: str) -> str:
    """Return the trace id of a context."""
    return context[_ID]


def make_headers() -> dict[str, str]:
    """Return the headers with the step that this task is in, for a receiver; none if off."""
    context = find_context()
    if context is None:
        return {}
    parent, _, state = context.partition(" ")
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


class _NoSpan:
    """A step that is not recorded."""

    context = ""

    def start(
        self, _name: str, _kind: StepKind = StepKind.INTERNAL, _attributes: Attributes = NONE
    ) -> Span:
        return self

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Attributes) -> None: ...

    def fail(self, error: str) -> None: ...

    def end(self) -> None: ...


class NoTracer:
    """Records nothing."""

    is_on = False

    def start(
        self,
        _name: str,
        _parent: str | None,
        _kind: StepKind,
        _attributes: Attributes = NONE,
        *,
        age_ms: int = 0,  # noqa: ARG002 - as the port has it
    ) -> Span:
        return _NoSpan()

    async def close(self) -> None: ...


OFF: Tracer = NoTracer()
