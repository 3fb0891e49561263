"""Structured logs: one JSON object per line, or readable lines on a terminal."""

from __future__ import annotations

import contextlib
import logging
import sys
from functools import partial
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


class _SafeStream:
    """Ignores write errors: a full disk or closed pipe must not fail what is being logged."""

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
    is_console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderers: list[Processor] = (
        [_escape_controls, structlog.dev.ConsoleRenderer()]
        if is_console
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *([] if process is None else [partial(_add_process, process)]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _SafeStream(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    # asyncpg logs every failed attempt with its stack; we log what it means for the service. Of
    # other libraries, warnings are logged.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    name = "%(name)s" if process is None else f"process {process}: %(name)s"
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format=f"{name}: %(message)s")


def _add_process(process: int, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    event.setdefault("process", process)
    return event


def _escape_controls(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep what a stranger sent from moving the cursor or adding lines of its own.

    JSON escapes by itself. The lines of a traceback are kept, and indented: none looks like ours.
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
