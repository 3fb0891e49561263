"""The metrics of all processes in one answer, from any of them.

Each sample has the label `process`. A process that does not answer in time is left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

from clarion.nodes.local_bus import LocalBus

ANSWER_LIMIT_S = 1.0
_ASK, _ANSWER = "processes.metrics_wanted", "processes.metrics"
_NAME = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{?)")
_COUNT = "clarion_processes"


class GatheredMetrics:
    """Asks the other processes for their metrics, and answers when it is asked."""

    def __init__(
        self, bus: LocalBus, render: Callable[[], bytes], *, limit_s: float = ANSWER_LIMIT_S
    ) -> None:
        self._bus = bus
        self._render = render
        self._limit_s = limit_s
        self._gathering: asyncio.Task[bytes] | None = None
        self._texts: dict[int, str] = {}
        self._answered = asyncio.Event()
        bus.subscribe(_ASK, self._answer)
        bus.subscribe(_ANSWER, self._take)

    async def gather(self) -> bytes:
        """Return the metrics of all processes; concurrent callers share one answer."""
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.get_running_loop().create_task(self._gather())
        return await asyncio.shield(self._gathering)

    async def _gather(self) -> bytes:
        self._texts = {}
        self._bus.publish(_ASK, str(self._bus.number).encode())
        try:
            async with asyncio.timeout(self._limit_s):
                while not self._texts.keys() >= set(self._bus.others):
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            pass  # the number of processes says that one is missing
        return merge({self._bus.number: self._render().decode(), **self._texts})

    def _answer(self, asking: Sequence[bytes]) -> None:
        answer = f"{self._bus.number}\n".encode() + self._render()
        for each in set(asking):
            self._bus.send_to_process(int(each), _ANSWER, answer)

    def _take(self, answers: Sequence[bytes]) -> None:
        for each in answers:
            number, _, text = each.partition(b"\n")
            self._texts[int(number)] = text.decode()
        self._answered.set()


def merge(texts: Mapping[int, str]) -> bytes:
    """Return the metrics of several processes as one text; samples of a metric are together."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in sorted(texts.items()):
        name = ""
        for line in text.splitlines():
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                head = heads.setdefault(name, [])
                head += [] if line in head else [line]
            elif line:
                samples.setdefault(name, []).append(_label(line, process))
    heads[_COUNT] = [
        f"# HELP {_COUNT} Processes of this node whose figures are in this answer.",
        f"# TYPE {_COUNT} gauge",
    ]
    samples[_COUNT] = [f"{_COUNT} {len(texts)}"]
    lines = [line for name, head in heads.items() for line in (*head, *samples.get(name, ()))]
    return ("\n".join(lines) + "\n").encode()


def _label(line: str, process: int) -> str:
    def add(match: re.Match[str]) -> str:
        return f'{match[1]}{{process="{process}"' + ("," if match[2] else "}")

    return _NAME.sub(add, line, count=1)
