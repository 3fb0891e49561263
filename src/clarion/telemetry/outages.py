"""What does not work for a while: one warning when that begins, and one when it is over.

What follows from it, and each repeat, is logged at debug: it says nothing new.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from clarion.errors import ClarionError
from clarion.telemetry.logs import Process, get_logger

# Something that fails again within this time has not worked in between.
QUIET_S = 5.0


class Outage:
    """An outage of something, from the first failure to the first success after the last one.

    `began` and `ended` are the logged events, with everything in `about`. A shared dependency fails
    for all processes of a server at once: the first logs it as a warning, the others at info.
    """

    __slots__ = (
        "_failed_at",
        "_is_shared",
        "_now",
        "_quiet_s",
        "_since",
        "_works_since",
        "about",
        "events",
        "failures",
    )

    def __init__(
        self,
        began: str,
        ended: str,
        *,
        quiet_s: float = 0.0,
        is_shared: bool = False,
        now: Callable[[], float] = time.monotonic,
        **about: Any,
    ) -> None:
        self.events = (began, ended)
        self.about = about
        self.failures = 0
        self._is_shared = is_shared
        self._quiet_s = quiet_s
        self._now = now
        self._since: float | None = None
        self._failed_at = 0.0
        self._works_since: float | None = None

    @property
    def is_open(self) -> bool:
        return self._since is not None

    def begin(self, cause: str, **more: Any) -> None:
        """Record a failure."""
        now, is_first = self._now(), self._since is None
        self._since = now if self._since is None else self._since
        self._failed_at, self._works_since = now, None
        self.failures += 1
        report = self._report if is_first else get_logger().debug
        report(self.events[0], **self.about, **more, cause=cause)

    def end(self, **more: Any) -> None:
        """Record a success. Called for each one, so it must be cheap while everything works."""
        if self._since is None:
            return
        now = self._now()
        if self._works_since is None:
            self._works_since = now
        if now - self._failed_at < self._quiet_s:
            return
        duration_s, failures = round(self._works_since - self._since, 1), self.failures
        self._since, self.failures = None, 0
        about = {**self.about, **more, "duration_s": duration_s, "failures": failures}
        self._report(self.events[1], **about)

    def _report(self, line: str, **about: Any) -> None:
        log = get_logger()
        report = log.info if self._is_shared and not Process.is_first else log.warning
        report(line, **about)


class Work:
    """Work in the background that is repeated until it succeeds; `name` is that of the loop."""

    def __init__(self, name: str) -> None:
        self._outage = Outage("work_delayed", "work_resumed", quiet_s=QUIET_S, work=name)

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Run it once. An expected error is suppressed, and logged unless that was done already."""
        try:
            yield
        except ClarionError as error:
            self.fail(error)
        else:
            self._outage.end()

    def fail(self, error: Exception) -> None:
        """Record a failed attempt: an expected error, or a fault in Clarion."""
        if not isinstance(error, ClarionError):
            get_logger().error("work_failed", **self._outage.about, exc_info=error)
        elif error.is_reported:
            log_failure("work_delayed", error, **self._outage.about)
        else:
            self._outage.begin(error.detail, code=error.code)

    def succeed(self) -> None:
        """Record that an attempt succeeded."""
        self._outage.end()


def log_failure(event: str, error: ClarionError, **about: Any) -> None:
    """Log what failed: at debug if its reason has been logged where it was noticed."""
    report = get_logger().debug if error.is_reported else get_logger().warning
    report(event, **about, code=error.code)
