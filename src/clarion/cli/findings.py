"""What `clarion doctor` finds, and how it is printed: a checklist with what to do next."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from clarion.errors import ClarionError, count

# A `note` is worth knowing, a `fault` must be fixed.
State = Literal["ok", "note", "fault"]
_INDENT = " " * 20
_ARROW = "→ "
_LEAST_WIDTH = 60


class Finding(NamedTuple):
    """What one check found, and what to do about it; nothing if it is in order."""

    state: State
    detail: str
    steps: tuple[str, ...] = ()


def ok(detail: str) -> Finding:
    return Finding("ok", detail)


def note(detail: str, *steps: str) -> Finding:
    return Finding("note", detail, steps)


def fault(detail: str, *steps: str) -> Finding:
    return Finding("fault", detail, steps)


def read_error(error: ClarionError, otherwise: str) -> Finding:
    """Return an error as a fault: its first sentence, and its advice."""
    detail, *lines = error.detail.splitlines()
    if not lines and ". " in detail:
        detail, _, rest = detail.partition(". ")
        lines = [rest]
    return fault(detail.removesuffix("."), *(lines or [otherwise]))


def print_findings(findings: Mapping[str, Finding]) -> None:
    """Print a line for each check with what to do below it, and at the end the number of faults.

    Output that is piped to another program is not wrapped.
    """
    width = shutil.get_terminal_size((0, 0)).columns
    for what, (state, detail, steps) in findings.items():
        print(f"{state:6} {what:12} {detail}")
        for step in steps:
            print(_wrap(step, width))
    print(f"\n{_summarise([each.state for each in findings.values()])}")


def _wrap(step: str, width: int) -> str:
    text = f"{_INDENT}{_ARROW}{step}"
    if width < _LEAST_WIDTH or "\n" in step:
        return text
    following = _INDENT + " " * len(_ARROW)
    return textwrap.fill(
        text, width, subsequent_indent=following, break_long_words=False, break_on_hyphens=False
    )


def _summarise(states: Sequence[State]) -> str:
    faults, notes = states.count("fault"), states.count("note")
    if not faults and not notes:
        return "Everything is in order."
    if not faults:
        return f"Nothing is wrong; {count(notes, 'note')}."
    also = f" and {count(notes, 'note')}" if notes else ""
    return f"{count(faults, 'fault')}{also}. Fix the faults from the top: one may cause others."
