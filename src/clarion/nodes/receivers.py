"""The callbacks of a node for what its bus receives; the same for every adapter of the port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec

from clarion.nodes.bus import Receive, Replaced
from clarion.telemetry.logs import get_logger

P = ParamSpec("P")


class Receivers:
    """The callbacks that a node registered. If one fails, it is logged; the others are called."""

    def __init__(self) -> None:
        self._by_subject: dict[str, Receive] = {}
        self._gap_calls: list[Callable[[], None]] = []
        self._replaced_calls: list[Replaced] = []

    def subscribe(self, subject: str, receive: Receive) -> None:
        if subject in self._by_subject:
            raise ValueError(f"two receivers of {subject}")
        self._by_subject[subject] = receive

    def on_gap(self, call: Callable[[], None]) -> None:
        self._gap_calls.append(call)

    def on_replaced(self, call: Replaced) -> None:
        self._replaced_calls.append(call)

    def receive(self, subject: str, messages: Sequence[bytes]) -> None:
        """Call the callbacks of the subject, if any."""
        if messages and (call := self._by_subject.get(subject)):
            _call(subject, call, messages)

    def miss(self) -> None:
        """Report that something may have been missed."""
        for call in self._gap_calls:
            _call("gap", call)

    def replace(self, device_ids: Sequence[str]) -> None:
        """Report devices that another node holds now."""
        for call in self._replaced_calls if device_ids else ():
            _call("replaced", call, device_ids)


def _call(subject: str, call: Callable[P, None], *values: P.args, **names: P.kwargs) -> None:
    try:
        call(*values, **names)
    except Exception as error:  # noqa: BLE001 - a failing receiver must not end the subscription
        get_logger().error("receiver_failed", subject=subject, exc_info=error)
