"""An event loop whose order and time come from a seed.

Of everything that is ready, the seed chooses what runs next; when nothing is, time moves on to the
next timer. Whatever order a real loop, kernel or network could bring about has a seed that does.
"""

import asyncio
import gc
import heapq
import random
import sys
import warnings
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

# Each step takes a little time, so that work and timers overlap.
STEP_S = 0.0002
# The longest of 50,000 runs has a third of it.
MOST_STEPS = 1_000_000
# Which node something runs on; 0 for what is no node's: providers, disks, users.
NODE: ContextVar[int] = ContextVar("simulated_node", default=0)


class Stalled(Exception):
    """Nothing is ready, nothing is planned, and somebody still waits."""


class Endless(Exception):
    """So many steps were made that it will not come to rest."""


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

    # Of the base class; its stub does not have it.
    _ready: Any

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._choose = chance.random
        self._now = 0.0
        # How much of it nobody was awake for.
        self.slept_s = 0.0
        self._numbers = 0
        # By time and number: tuples are compared faster than handles.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.steps = 0
        self._dead: set[int] = set()
        # Nodes that are paused, and what they are to run when they go on.
        self._paused: dict[int, list[asyncio.Handle]] = {}
        # Connects a protocol to a simulated server.
        self.connect: Callable[[Any], Coroutine[Any, Any, Any]] | None = None
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

    def is_dead(self, node: int) -> bool:
        """Whether a node has crashed."""
        return node in self._dead

    def pause(self, node: int) -> None:
        """Run nothing of a node until it goes on, as SIGSTOP does."""
        self._paused.setdefault(node, [])

    def go_on(self, node: int) -> None:
        """Run what a paused node would have run meanwhile, in any order."""
        self._ready.extend(self._paused.pop(node, ()))

    def advance(self, seconds: float) -> None:
        """Let time pass in which nothing runs, as if the machine had slept."""
        self._now += seconds
        self.slept_s += seconds

    def awake(self) -> float:
        """Return the time without that in which nothing ran."""
        return self._now - self.slept_s

    def abandon(self) -> None:
        """Close with all that is under way, which is not ended: nothing of it runs again."""
        self._ready.clear()
        self._timers.clear()
        self._paused.clear()
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()
        before, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            with warnings.catch_warnings():  # of what had not begun
                warnings.simplefilter("ignore", RuntimeWarning)
                self.tasks.clear()
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

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        return _Future(self._numbers, self)

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *address: Any, **options: Any
    ) -> Any:
        del address, options
        if self.connect is None:
            raise OSError("there is no network")
        return await self.connect(protocol_factory())

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
            if not self._timers:
                raise Stalled
            self._now = self._timers[0][0]
            self._take_due()
        if not ready:
            return
        index = int(self._choose() * len(ready))
        handle = ready[index]
        del ready[index]
        node = handle._context.get(NODE, 0)
        if handle._cancelled or node in self._dead:
            return
        if node in self._paused:
            self._paused[node].append(handle)
            return
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Endless
        handle._run()

    def _take_due(self) -> None:
        timers, now = self._timers, self._now
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._ready.append(handle)

    def _process_events(self, event_list: Any) -> None:
        """There are none: nothing here has a descriptor."""

    def _write_to_self(self) -> None:
        """Nothing waits for a descriptor."""
