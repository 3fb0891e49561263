"""Values cached on several nodes: dropped on all when one node changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from clarion.nodes.bus import ALONE, Bus
from clarion.telemetry.logs import get_logger

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class Invalidation:
    """Drops cached values by key: here at once, on other nodes when the message arrives.

    A key is a tuple of strings, byte strings and booleans: the arguments of `forget`. `forget_all`
    drops everything; it is called when this node may have missed something.
    """

    def __init__(
        self, subject: str, forget: Callable[..., None], forget_all: Callable[[], None]
    ) -> None:
        self._subject = subject
        self._forget = forget
        self._forget_all = forget_all
        self.bus: Bus = ALONE

    def join(self, bus: Bus) -> None:
        """Publish to the other nodes from now on, and subscribe to their changes."""
        self.bus = bus
        bus.subscribe(self._subject, self._receive)
        bus.on_gap(self._forget_all)

    def __call__(self, *key: str | bytes | bool) -> None:
        """Drop the values cached under a key on all nodes; call it after the commit."""
        self._forget(*key)
        self.publish(*key)

    def publish(self, *key: str | bytes | bool) -> None:
        """Publish that the other nodes drop the values cached under a key."""
        self.bus.publish(self._subject, _encode(key))

    def _receive(self, keys: Sequence[bytes]) -> None:
        for data in keys:
            try:
                self._forget(*_decode(data))
            except (msgspec.DecodeError, TypeError):
                # A node with another version has other keys.
                get_logger().warning("unknown_invalidation", subject=self._subject)
                self._forget_all()
