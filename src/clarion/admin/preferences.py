"""Preferences as a form: what to show, and what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HOURS = 24
# Values from these sources were not set by the user, and no choice of the user changes them.
FIXED = frozenset({"mandatory", "type", "category"})


def describe_hours(hours: list[Any]) -> dict[str, Any]:
    """Return quiet hours as words, as one window if they are, and as 24 flags to draw."""
    if not hours or isinstance(hours[0], bool):
        flags = [bool(each) for each in hours] or [False] * _HOURS
        window = _find_window(flags)
        words = [_show_window(*window) if window else _describe_flags(flags)]
    else:
        flags = [any(_covers(each, hour) for each in hours) for hour in range(_HOURS)]
        words = [_describe_window(each) for each in hours]
        window = (hours[0]["from"], hours[0]["to"]) if len(hours) == 1 else None
    start, end = window or ("", "")
    shown = "; ".join(filter(None, words)) or "several hours of the day"
    return {"flags": flags, "words": shown, "from": start, "to": end}


def find_changes(before: dict[str, Any], form: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the body that sets what a form has changed.

    Browsers send only checked boxes; unchecked ones are missing.
    """
    changes: dict[str, Any] = {}
    categories = {
        name: f"category.{name}" in form
        for name, setting in before["categories"].items()
        if setting["value"] is not (f"category.{name}" in form) and setting["source"] not in FIXED
    }
    types = {
        name: changed
        for name, channels in before["types"].items()
        if (changed := _changed_channels(name, channels, form))
    }
    if categories:
        changes["categories"] = categories
    if types:
        changes["types"] = types
    return changes | _changed_hours(form)


def _changed_channels(
    name: str, channels: dict[str, Any], form: Mapping[str, list[str]]
) -> dict[str, bool]:
    return {
        channel: is_on
        for channel, setting in channels.items()
        if (is_on := f"type.{name}.{channel}" in form) is not setting["value"]
        and setting["source"] not in FIXED
    }


def _changed_hours(form: Mapping[str, list[str]]) -> dict[str, Any]:
    match form.get("quiet", ["keep"])[-1]:
        case "default":
            return {"quiet_hours": None}
        case "none":
            return {"quiet_hours": [False] * _HOURS}
        case "window":
            start, end = form.get("from", [""])[-1], form.get("to", [""])[-1]
            return {"quiet_hours": {"from": start, "to": end}}
        case _:
            return {}


def _describe_flags(flags: list[bool]) -> str:
    if all(flags):
        return "all day"
    return "" if any(flags) else "no quiet hours"


def _find_window(flags: list[bool]) -> tuple[str, str] | None:
    """Return the beginning and the end of quiet hours that are one window, or None."""
    starts = [hour for hour in range(_HOURS) if flags[hour] and not flags[hour - 1]]
    if len(starts) != 1:
        return None
    start = starts[0]
    length = next(each for each in range(1, _HOURS) if not flags[(start + each) % _HOURS])
    return f"{start:02}:00", f"{(start + length) % _HOURS:02}:00"


def _show_window(start: str, end: str) -> str:
    return f"{start} to {end}"


def _describe_window(window: dict[str, Any]) -> str:
    days = window.get("days", [])
    every = len(set(days)) in (0, 7)
    return _show_window(window["from"], window["to"]) + ("" if every else f" on {', '.join(days)}")


def _covers(window: dict[str, Any], hour: int) -> bool:
    """Whether an hour begins within a window of any day."""
    now, start, end = f"{hour:02}:00", str(window["from"]), str(window["to"])
    return start <= now < end if start < end else now >= start or now < end
