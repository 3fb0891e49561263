"""Structured logs: one JSON object per line, or readable lines on a terminal.

A line that is logged while a request is handled has its `request_id`, one of the work on an event
its `event_id`, and both have a `trace_id` if there is one. docs/reference/log-events.md lists all.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from clarion.telemetry import traces

# Lines of one library in a minute; a collector or database that is away must not fill the disk.
_LIBRARY_LINES = 10
_MINUTE_S = 60.0
_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


class Process:
    """Which of several processes of a server this is; the first one also if it is alone."""

    is_first = True


class Handled:
    """A request that is handled: its id, and its headers by their lower-case names.

    It has no other reference to the request: values in a context variable live as long as the task,
    and the request refers to the task, so only the cycle collector would free them.
    """

    __slots__ = ("headers", "id", "is_answered")

    def __init__(self, request_id: str, headers: Mapping[bytes, bytes]) -> None:
        self.id = request_id
        self.headers = headers
        self.is_answered = False


# What this task does.
request: ContextVar[Handled | None] = ContextVar("request", default=None)
event_id: ContextVar[str | None] = ContextVar("event_id", default=None)


def end_request() -> None:
    """Note that the request is answered: later log lines of this task are not about it.

    Tasks that it has started may run for much longer.
    """
    handled = request.get()
    if handled is not None:
        handled.is_answered = True


class _SafeStream:
    """Ignores write errors: a full disk or closed pipe must not break the code that logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def configure(level: str, log_format: str, *, process: int | None = None) -> None:
    """Configure logging for the whole process. Logs go to standard error.

    If it is one of several, each line has its number.
    """
    Process.is_first = process in {None, 1}
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderers: list[Processor] = (
        [_escape_controls, structlog.dev.ConsoleRenderer()]
        if is_console
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            _add_context,
            *([] if process is None else [partial(_add_process, process)]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        # In one write, with its end: the lines of several processes must not mix.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _SafeStream(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    # asyncpg logs every failed attempt with its stack; we log what it means for the service. Of
    # other libraries, warnings are logged.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    logging.basicConfig(level=logging.WARNING, handlers=[LibraryLog()])


def log_uncaught() -> None:
    """Log uncaught errors of any thread as normal log lines."""

    def log(about: Any) -> None:
        caught = (about.exc_type, about.exc_value, about.exc_traceback)
        get_logger().error("uncaught", exc_info=caught)

    def log_last(*caught: Any) -> None:
        get_logger().error("uncaught", exc_info=caught)

    sys.excepthook = log_last
    threading.excepthook = log
    sys.unraisablehook = log


class LibraryLog(logging.Handler):
    """Logs the warnings of libraries as log lines of Clarion, a few of each per minute."""

    def __init__(self) -> None:
        super().__init__()
        # By library: when its minute began, and its lines since.
        self._lines: dict[str, tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now, library = time.monotonic(), record.name.partition(".")[0]
        began, lines = self._lines.get(library, (now, 0))
        if now - began >= _MINUTE_S:
            began, lines = now, 0
        self._lines[library] = (began, lines + 1)
        if lines < _LIBRARY_LINES:
            get_logger().log(
                min(record.levelno, logging.ERROR),
                "library_warning",
                library=record.name,
                message=record.getMessage(),
                exc_info=record.exc_info,
            )


def _add_context(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the request or event that this task works on."""
    handled, work, span = request.get(), event_id.get(), traces.current.get()
    context = None if span is None else span.context
    if handled is not None and not handled.is_answered:
        event.setdefault("request_id", handled.id)
        context = context or traces.read_context(handled.headers)
    if work is not None:
        event.setdefault("event_id", work)
        context = context or traces.stored.get().get(work)
    if context:
        event.setdefault("trace_id", traces.id_of(context))
    return event


def _add_process(process: int, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.setdefault("process", process)
    return event


def _escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep text from outside from moving the cursor or adding lines.

    JSON escapes it anyway. The lines of a traceback are kept, but indented, so that none looks like
    a log line.
    """
    escaped: EventDict = {
        name: _escape(value) if isinstance(value, str) else value for name, value in event.items()
    }
    if isinstance(trace := event.get("exception"), str):
        escaped["exception"] = "\n".join("  " + _escape(line) for line in trace.split("\n"))
    return escaped


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def get_logger() -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger
