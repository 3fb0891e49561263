"""What a limit leaves a caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a limit leaves a caller."""

    limit: int
    remaining: int
    reset_s: int
    is_exceeded: bool
