"""The state of a rate limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What is left of a rate limit in the current window."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool
