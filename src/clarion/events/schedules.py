"""How often a channel is tried again, and when. Each wait is from one attempt to the next.

`docs/reference/providers.md` is made from this table.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

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
# With the half second in which due jobs are found, it is at most a second.
_RETRY_AFTER_JITTER_S = 0.5
# What was not tried, because its provider fails, is looked at again after up to a quarter of the
# time that it has waited: however many wait, looking at them is little work.
_UNTRIED_SHARE = 0.25
_UNTRIED_LONGEST_S = 5 * _MINUTE


def find_wait_s(
    channel: Channel, tries: int, elapsed_s: float, retry_after_s: float | None = None
) -> float | None:
    """Return the wait after a number of failed tries, None after the last one.

    `retry_after_s` is the time that the provider asked for; it replaces the wait. If the schedule
    ends early because the provider asked for short times, it starts once more, and such times do
    not shorten it again.
    """
    waits = WAITS_S[channel]
    if _is_over(waits, tries, elapsed_s):
        return None
    if retry_after_s is not None and tries <= len(waits):
        return add_jitter(retry_after_s)
    wait_s = waits[(tries - 1) % len(waits)] * random.uniform(1, 1 + SPREAD)  # noqa: S311 - jitter
    return wait_s if retry_after_s is None else max(wait_s, add_jitter(retry_after_s))


def find_wait_untried_s(channel: Channel, elapsed_s: float, retry_after_s: float) -> float | None:
    """Return the wait of a delivery not tried because its provider fails; None if time is up."""
    if elapsed_s >= sum(WAITS_S[channel]):
        return None
    longest_s = max(retry_after_s, min(elapsed_s * _UNTRIED_SHARE, _UNTRIED_LONGEST_S))
    return add_jitter(random.uniform(retry_after_s, longest_s))  # noqa: S311 - jitter


def add_jitter(retry_after_s: float) -> float:
    """Return a time that a provider asked for, up to half a second longer."""
    return retry_after_s + random.uniform(0, _RETRY_AFTER_JITTER_S)  # noqa: S311 - jitter


def _is_over(waits: Sequence[float], tries: int, elapsed_s: float) -> bool:
    """Whether the schedule ends after these tries in this time, at the latest after two rounds."""
    return tries > 2 * len(waits) or (tries > len(waits) and elapsed_s >= sum(waits))
