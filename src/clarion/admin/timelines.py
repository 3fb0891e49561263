"""The timeline of a notification as it is drawn: words, colours, and the time between entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from clarion.admin.reasons import explain_reason

# What an entry is called, and how it is coloured; an attempt ends with its outcome.
_WORDS = {
    "accepted": ("Event accepted", "info"),
    "scheduled": ("Scheduled", "info"),
    "created": ("Notification created", "info"),
    "send": ("Decided to send", "info"),
    "hold": ("Held", "warn"),
    "fold": ("Folded", "warn"),
    "drop": ("Dropped", "off"),
    "failed": ("Failed", "bad"),
    "delivered": ("Delivered", "good"),
    "read": ("Read", "good"),
    "dismissed": ("Dismissed", "off"),
}
_OUTCOMES = {"delivered": "good", "sent": "good", "retry": "warn", "unknown": "warn"}
_SECOND, _MINUTE, _HOUR, _DAY = 1.0, 60.0, 3600.0, 86_400.0
_AT_ONCE_S = 0.0005


def describe_timeline(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with words, a tone, and how long after the one before they are."""
    shown: list[dict[str, Any]] = []
    before: datetime | None = None
    for each in entries:
        at = datetime.fromisoformat(each["at"])
        passed = (at - before).total_seconds() if before else 0.0
        words, tone = _describe(each["what"])
        later = f"+{show_duration(passed)}" if passed > _AT_ONCE_S else ""
        more = {"words": words, "tone": tone, "later": later}
        shown.append(each | more | {"reason_words": explain_reason(each["reason"])})
        before = at
    return shown


def describe_reasons(channels: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of channels, each with its reason in words."""
    return [each | {"reason_words": explain_reason(each["reason"])} for each in channels]


def describe_deliveries(deliveries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the deliveries with their reason in words, and how long they took."""
    return [each | {"took": _measure(each)} for each in describe_reasons(deliveries)]


def show_duration(seconds: float) -> str:
    """Return a length of time in the unit that fits: 4 ms, 1.5 s, 12 min, 8.0 h, 2.0 d."""
    if seconds < _SECOND:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.1f} d"


def _describe(what: str) -> tuple[str, str]:
    if what.startswith("attempt "):
        return what.capitalize(), _OUTCOMES.get(what.rpartition(" ")[2], "bad")
    return _WORDS.get(what, (what.capitalize(), "info"))


def _measure(delivery: dict[str, Any]) -> str:
    began = delivery["sent_at"] or delivery["last_attempt_at"]
    if not began or not delivery["delivered_at"]:
        return ""
    took = datetime.fromisoformat(delivery["delivered_at"]) - datetime.fromisoformat(began)
    return show_duration(took.total_seconds()) if took.total_seconds() > _AT_ONCE_S else ""
