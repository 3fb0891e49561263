"""The output of `clarion device listen`: text, one line of statistics, or JSON."""

from __future__ import annotations

import statistics
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from rich.console import Console
from rich.text import Text

from clarion.cli.device.connection import Notification, Ready
from clarion.cli.device.credentials import Device
from clarion.errors import count

_PAYLOAD_SHOWN = 200
_LATENCIES = 1_000
_REDRAW_MS = 200
_REPEAT_MS = 5_000
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


class Output(Protocol):
    """Shows what happens to the devices. `now` is in milliseconds since 1970."""

    def show_ready(self, device: Device, ready: Ready, now: int) -> None: ...

    def show(self, device: Device, message: Notification, latency_ms: int, now: int) -> None: ...

    def show_lost(self, device: Device, why: str, retry_s: float) -> None: ...

    def tick(self, now: int) -> None:
        """Update what depends on time; called several times a second."""
        return

    def finish(self) -> None:
        """End the output; called once."""
        return


class TextLines(Output):
    """For one device: two lines for each message."""

    def __init__(self, introduction: str) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._introduction = introduction
        self._is_introduced = False

    def show_ready(self, device: Device, ready: Ready, now: int) -> None:
        if self._is_introduced:
            self._print("Reconnected.", "green")
            return
        self._is_introduced = True
        self._print(f"Listening as device {ready.device_id}", "bold green")
        self._print(f"Token {device.token}\n{self._introduction}\n")
        if ready.pending:
            self._print(f"{count(ready.pending, 'message')} waiting\n", "green")

    def show(self, device: Device, message: Notification, latency_ms: int, now: int) -> None:
        time = datetime.fromtimestamp(now / 1000, UTC).astimezone().strftime("%H:%M:%S")
        topic = f"topic {message.topic}, " if message.topic else ""
        details = f"priority {message.priority}, after {duration(latency_ms)}, {topic}"
        self._print(Text.assemble((time, "dim"), "  ", (describe_alert(message), "bold")))
        self._print(f"          {printable(details)}id {printable(message.id)}", "dim")

    def show_lost(self, device: Device, why: str, retry_s: float) -> None:
        self._print(f"{printable(why)} Reconnecting in {retry_s:.1f} s.", "yellow")

    def finish(self) -> None:
        # The terminal shows ^C; the prompt must start on a new line.
        if self._console.is_terminal and self._is_introduced:
            self._print("")

    def _print(self, text: str | Text, style: str = "") -> None:
        self._console.print(text if isinstance(text, Text) else Text(text, style))
        self._console.file.flush()


class Summary(Output):
    """For many devices: one line of statistics, redrawn on a terminal."""

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

    def show_ready(self, device: Device, ready: Ready, now: int) -> None:
        self._online.add(device.token)
        self.tick(now)

    def show(self, device: Device, message: Notification, latency_ms: int, now: int) -> None:
        self._received += 1
        self._latencies.append(latency_ms)
        self.tick(now)

    def show_lost(self, device: Device, why: str, retry_s: float) -> None:
        self._online.discard(device.token)

    def tick(self, now: int) -> None:
        self._count_rate(now)
        if now - self._drawn_at >= (_REDRAW_MS if self._is_terminal else _REPEAT_MS):
            self._drawn_at = now
            self._draw()

    def finish(self) -> None:
        self._draw()
        if self._is_terminal:
            _write("\n")

    def _count_rate(self, now: int) -> None:
        passed = now - self._counted_at
        if passed >= _SECOND_MS:
            self._rate = (self._received - self._counted) * 1000 / passed
            self._counted_at, self._counted = now, self._received

    def _draw(self) -> None:
        line = self._describe()
        if line != self._last:
            self._last = line
            _write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")

    def _describe(self) -> str:
        line = f"{len(self._online):,} of {count(self._total, 'device')} connected, "
        line += f"{self._received:,} received, {self._rate:,.0f} per second"
        if self._latencies:
            median, slowest = statistics.median(self._latencies), max(self._latencies)
            line += f", after {duration(int(median))} (slowest {duration(slowest)})"
        return line


class JsonLines(Output):
    """For scripts: one JSON object per line."""

    def show_ready(self, device: Device, ready: Ready, now: int) -> None:
        fields = {"device_id": ready.device_id, "token": device.token, "pending": ready.pending}
        _write_json({"type": "ready", **fields})

    def show(self, device: Device, message: Notification, latency_ms: int, now: int) -> None:
        fields = msgspec.to_builtins(message)
        _write_json({**fields, "token": device.token, "latency_ms": latency_ms})

    def show_lost(self, device: Device, why: str, retry_s: float) -> None:
        retry = round(retry_s, 1)
        _write_json({"type": "lost", "token": device.token, "reason": why, "retry_s": retry})


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_json(fields: dict[str, Any]) -> None:
    _write(msgspec.json.encode(fields).decode() + "\n")


def describe_alert(message: Notification) -> str:
    """Return the title and text of a message, or its payload if it has neither."""
    payload = message.payload
    aps = payload.get("aps")
    alert = aps.get("alert") if isinstance(aps, dict) else None
    parts = [alert.get(key) for key in ("title", "body")] if isinstance(alert, dict) else [alert]
    text = " — ".join(part for part in parts if isinstance(part, str) and part)
    return printable(text or msgspec.json.encode(payload).decode()[:_PAYLOAD_SHOWN])


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def duration(milliseconds: int) -> str:
    """Return a duration in a readable unit: 4 ms, 2.5 s, 12 min, 3 h, 2 days."""
    if milliseconds < _SECOND_MS:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE_MS:
        return f"{milliseconds / _SECOND_MS:.1f} s"
    if milliseconds < _HOUR_MS:
        return f"{milliseconds // _MINUTE_MS} min"
    if milliseconds < _DAY_MS:
        return f"{milliseconds // _HOUR_MS} h"
    return count(milliseconds // _DAY_MS, "day")
