"""What `clarion device listen` shows: lines to read, one line of numbers, or JSON for scripts."""

from __future__ import annotations

import statistics
import sys
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from rich.console import Console
from rich.text import Text

from clarion.cli.devices.device_link import Notification

if TYPE_CHECKING:
    from clarion.cli.devices.device_link import Ready
    from clarion.cli.devices.known_devices import KnownDevice

_PAYLOAD_SHOWN = 200
_LATENCIES = 1_000
_REDRAW_MS = 200
_REPEAT_MS = 5_000
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


class Display(Protocol):
    """Shows what happens to devices that listen. `now` is in milliseconds since 1970."""

    def show_ready(self, device: KnownDevice, ready: Ready, now: int) -> None:
        """A device is connected."""
        ...

    def show(self, device: KnownDevice, message: Notification, latency_ms: int, now: int) -> None:
        """A message has arrived, so long after it was accepted."""
        ...

    def show_lost(self, device: KnownDevice, why: str, retry_s: float) -> None:
        """A device lost its connection, and tries again."""
        ...

    def tick(self, now: int) -> None:
        """Some time has passed."""
        ...

    def finish(self) -> None:
        """It is over."""
        ...


class Lines:
    """For one device: two lines a message, the second one for those who want to know."""

    def __init__(self, introduction: str) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._introduction = introduction
        self._is_introduced = False

    def show_ready(self, device: KnownDevice, ready: Ready, now: int) -> None:  # noqa: ARG002 - Display
        if self._is_introduced:
            self._print(Text("Connected again.", "green"))
            return
        self._is_introduced = True
        self._print(Text(f"Listening as device {ready.device_id}", "bold green"))
        self._print(Text(f"Token {device.token}\n{self._introduction}\n"))
        if ready.pending:
            self._print(Text(f"While it was away: {count(ready.pending, 'message')}\n", "green"))

    def show(self, device: KnownDevice, message: Notification, latency_ms: int, now: int) -> None:  # noqa: ARG002
        alert = Text.assemble((clock_time(now), "dim"), "  ", (describe_alert(message), "bold"))
        topic = f"topic {message.topic}, " if message.topic else ""
        details = f"priority {message.priority}, after {span(latency_ms)}, {topic}id {message.id}"
        self._print(alert)
        self._print(Text(f"          {printable(details)}", "dim"))

    def show_lost(self, device: KnownDevice, why: str, retry_s: float) -> None:  # noqa: ARG002
        again = f"Trying again in {retry_s:.1f} s."
        self._print(Text(f"{printable(why)} {again}", "yellow"))

    def tick(self, now: int) -> None: ...

    def finish(self) -> None:
        # Behind the ^C of a terminal, so that the prompt begins a line.
        if self._console.is_terminal and self._is_introduced:
            self._print(Text(""))

    def _print(self, text: Text) -> None:
        self._console.print(text)
        self._console.file.flush()


class Summary:
    """For many devices: one line of numbers, drawn over and over on a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._online: set[str] = set()
        self._received = 0
        self._latencies: deque[int] = deque(maxlen=_LATENCIES)
        self._last = ""
        self._drawn_at = self._counted_at = 0
        self._counted = 0
        self._rate = 0.0
        self._is_terminal = sys.stdout.isatty()

    def show_ready(self, device: KnownDevice, ready: Ready, now: int) -> None:  # noqa: ARG002
        self._online.add(device.token)
        self.tick(now)

    def show(self, device: KnownDevice, message: Notification, latency_ms: int, now: int) -> None:  # noqa: ARG002
        self._received += 1
        self._latencies.append(latency_ms)
        self.tick(now)

    def show_lost(self, device: KnownDevice, why: str, retry_s: float) -> None:  # noqa: ARG002
        self._online.discard(device.token)

    def tick(self, now: int) -> None:
        self._count_rate(now)
        if now - self._drawn_at >= (_REDRAW_MS if self._is_terminal else _REPEAT_MS):
            self._drawn_at = now
            self._draw()

    def finish(self) -> None:
        self._draw()
        if self._is_terminal:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _count_rate(self, now: int) -> None:
        passed = now - self._counted_at
        if passed >= _SECOND_MS:
            self._rate = (self._received - self._counted) * 1000 / passed
            self._counted_at, self._counted = now, self._received

    def _draw(self) -> None:
        line = self._describe()
        if line == self._last:
            return
        self._last = line
        sys.stdout.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        sys.stdout.flush()

    def _describe(self) -> str:
        line = f"{len(self._online):,} of {self._total:,} devices connected, "
        line += f"{self._received:,} received, {self._rate:,.0f} a second"
        if self._latencies:
            middle, slowest = statistics.median(self._latencies), max(self._latencies)
            line += f", after {span(int(middle))} (slowest {span(slowest)})"
        return line


class JsonLines:
    """For scripts: one JSON object a line."""

    def show_ready(self, device: KnownDevice, ready: Ready, now: int) -> None:  # noqa: ARG002
        fields = {"device_id": ready.device_id, "token": device.token, "pending": ready.pending}
        _print_json({"type": "ready", **fields})

    def show(self, device: KnownDevice, message: Notification, latency_ms: int, now: int) -> None:  # noqa: ARG002
        fields = msgspec.to_builtins(message)
        _print_json({**fields, "token": device.token, "latency_ms": latency_ms})

    def show_lost(self, device: KnownDevice, why: str, retry_s: float) -> None:
        retry = round(retry_s, 1)
        _print_json({"type": "lost", "token": device.token, "reason": why, "retry_s": retry})

    def tick(self, now: int) -> None: ...

    def finish(self) -> None: ...


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
    sys.stdout.flush()


def describe_alert(message: Notification) -> str:
    """Return the title and text of a message; its payload if it has none."""
    payload = message.payload
    aps = payload.get("aps")
    alert = aps.get("alert") if isinstance(aps, dict) else None
    parts = [alert.get(key) for key in ("title", "body")] if isinstance(alert, dict) else [alert]
    text = " — ".join(part for part in parts if isinstance(part, str) and part)
    return printable(text or msgspec.json.encode(payload).decode()[:_PAYLOAD_SHOWN])


def printable(text: str) -> str:
    """Return a text without what could play tricks on a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def clock_time(now: int) -> str:
    """Return the time of day where the reader is."""
    return datetime.fromtimestamp(now / 1000, UTC).astimezone().strftime("%H:%M:%S")


def span(milliseconds: int) -> str:
    """Return a time as people say it: 4 ms, 2.5 s, 12 min, 3 h, 2 days."""
    if milliseconds < _SECOND_MS:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds / _SECOND_MS:.1f} s"
    if milliseconds < _HOUR_MS:
        return f"{milliseconds // _MINUTE_MS} min"
    if milliseconds < _DAY_MS:
        return f"{milliseconds // _HOUR_MS} h"
    return count(milliseconds // _DAY_MS, "day")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 day, 2 days."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
