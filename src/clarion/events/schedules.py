"""How often a channel is tried again, and when. Each wait is from one attempt to the next.

`docs/reference/providers.md` is made from this table.
"""

from __future__ import annotations

import random

from clarion.catalog.model import Channel

_MINUTE, _HOUR = 60.0, 3600.0
WAITS_S: dict[Channel, tuple[float, ...]] = {
    Channel.PUSH: (5, 30, 5 * _MINUTE, 15 * _MINUTE, _HOUR),
    # A server that does not know us yet may ask for some minutes of patience.
    Channel.EMAIL: (_MINUTE, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 8 * _HOUR),
    Channel.SMS: (5, 30, 5 * _MINUTE, 30 * _MINUTE),
    # As the Standard Webhooks specification proposes: 75 hours and 35 minutes.
    Channel.WEBHOOK: (
        5, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR, 14 * _HOUR, 20 * _HOUR,
        24 * _HOUR,
    ),
    Channel.STUB: (1, 2, 4, 8),
}  # fmt: skip
# Those who failed at the same moment do not return at the same moment.
SPREAD = 0.1
_TOLD_SPREAD_S = 1.0


def find_wait_s(channel: Channel, tries: int, told_s: float | None = None) -> float | None:
    """Return the wait after so many failed tries, None after the last one.

    `told_s` is the time that the provider asked for, and counts instead.
    """
    waits = WAITS_S[channel]
    if tries > len(waits):
        return None
    if told_s is not None:
        return told_s + random.uniform(0, _TOLD_SPREAD_S)  # noqa: S311 - jitter
    return waits[tries - 1] * random.uniform(1, 1 + SPREAD)  # noqa: S311 - jitter
