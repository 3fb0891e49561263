"""Messages of a topic that are offered together, and what their subscribers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from clarion.push.frames import encode_once
from clarion.push.model import Message
from clarion.sockets.protocol import SharedFrames

# Well below the messages that a connection may have in flight.
BATCH_LIMIT = 32


class TopicBatch:
    """The parts that are the same for every subscriber, computed once."""

    __slots__ = (
        "are_stored",
        "expires_at",
        "first",
        "frames",
        "in_flight",
        "last",
        "least",
        "messages",
        "sequences",
    )

    def __init__(self, messages: Sequence[Message], now: int) -> None:
        self.messages = messages
        self.first, self.last = messages[0].sequence, messages[-1].sequence
        self.sequences = range(self.first, self.last + 1)
        self.are_stored = messages[0].is_stored
        self.least = min(message.priority for message in messages)
        self.expires_at = min(message.expires_at for message in messages)
        # As a session has them: by id, with the time at which they were sent.
        self.in_flight = {message.id: (message, now) for message in messages}
        self.frames = SharedFrames(map(encode_once, messages))


def cut_batch(waiting: Iterable[Message], now: int) -> TopicBatch:
    """Return the first of the messages that can be sent together: stored, and without a gap."""
    first, *others = islice(waiting, BATCH_LIMIT)
    together, ids = [first], {first.id}
    for message in others:
        is_next = message.sequence == together[-1].sequence + 1
        if not (is_next and first.is_stored and message.is_stored) or message.id in ids:
            break
        together.append(message)
        ids.add(message.id)
    return TopicBatch(together, now)
