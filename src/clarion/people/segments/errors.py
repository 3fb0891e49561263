"""What is wrong with a filter, and where."""

from __future__ import annotations


class FilterError(ValueError):
    """A filter that is not valid; the message names the character where reading stopped."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        where = "" if position is None else f"character {position}: "
        super().__init__(f"{where}{reason}")
