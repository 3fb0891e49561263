"""An event loop whose order and time come from a seed.

Of everything that is ready, the seed chooses what runs next; when nothing is, time moves on to the
next timer. Whatever order a real loop, kernel or network could bring about has a seed that does.
"""

import asyncio
import gc
import heapq
import random
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

# Each step takes a little time, so that work and timers overlap.
STEP_S = 0.0002
# Which node something runs on; 0 for what is no node's: providers, disks, users.
NODE: ContextVar[int] = ContextVar("simulated_node", default=0)


class Stalled(Exception):
    """Nothing is ready, nothing is planned, and somebody still waits."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SeededLoop(asyncio.BaseEventLoop):
    """Runs what is ready in an order that the seed chooses, on a clock of its own."""

    # Of the base class; its stub does not have them.
    _ready: Any
    _scheduled: list[Any]

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._choose = chance.random
        self._now = 0.0
        self._numbers = 0
        self.steps = 0
        self._dead: set[int] = set()
        # Also those of nodes that crashed: what is never run again must not be cleaned up either.
        self.tasks: list[_Task] = []
        make: Any = self._make_task
        self.set_task_factory(make)
        self.set_exception_handler(self._note_failure)
        self.failures: list[str] = []

    def time(self) -> float:
        return self._now

    def kill(self, node: int) -> None:
        """Run nothing more of a node: it has crashed."""
        self._dead.add(node)

    def abandon(self) -> None:
        """Close with all that is under way, which is not ended: nothing of it runs again."""
        self._ready.clear()
        self._scheduled.clear()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()
        self.tasks.clear()
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            gc.collect()
        finally:
            sys.unraisablehook = before

    def run_on(self, node: int, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine on a node, or on none."""
        context = Context()
        context.run(NODE.set, node)
        return self.create_task(work, context=context)

    def call_apart(self, delay_s: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        """Call something later that is no node's, and happens whatever becomes of them."""
        return self.call_later(delay_s, call, context=Context())

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        return _Future(self._numbers, self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        del executor
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                future.set_exception(error)

        self.call_later(self._choose() * 0.01, run)
        return future

    def _make_task(
        self, _loop: Any, coro: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        if context is None:
            context = copy_context()
        elif NODE not in context:
            context.run(NODE.set, NODE.get())
        self._numbers += 1
        task = _Task(self._numbers, coro, loop=self, context=context)
        self.tasks.append(task)
        return task

    def _note_failure(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {type(error).__name__} {error}")

    # Called by the base class again and again.
    def _run_once(self) -> None:
        ready = self._ready
        self._now += STEP_S * self._choose()
        self._take_due()
        if not ready:
            if not self._scheduled:
                raise Stalled
            self._now = self._scheduled[0]._when
            self._take_due()
        if not ready:
            return
        index = int(self._choose() * len(ready))
        handle = ready[index]
        del ready[index]
        if not handle._cancelled and handle._context.get(NODE, 0) not in self._dead:
            self.steps += 1
            handle._run()

    def _take_due(self) -> None:
        scheduled = self._scheduled
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= self._now):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)

    def _process_events(self, event_list: Any) -> None:
        """There are none: nothing here has a descriptor."""

    def _write_to_self(self) -> None:
        """Nothing waits for a descriptor."""
