"""The sandbox: a few processes for the schemas and templates of all apps, with a share for each."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

import msgspec

from clarion.catalog.sandbox.budget import ProcessorBudget
from clarion.catalog.sandbox.jobs import Job, JobResult
from clarion.catalog.sandbox.process import ProcessEnded, SandboxProcess
from clarion.catalog.sandbox.slots import AppSlots
from clarion.errors import Overloaded, TooManyRequests
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import Outage

# An app has at most one of them at a time, so one that keeps it busy does not stop the others.
PROCESSES = 2
# What a job costs that ended its process: the time it took, and the start of the next process.
KILLED_S = 0.75
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JobResult).decode


class ProcessSandbox:
    """The `Sandbox` port. Its processes start when they are first needed."""

    def __init__(self, per_minute_s: float, *, processes: int = PROCESSES) -> None:
        self._outage = Outage("sandbox_unavailable", "sandbox_available")
        self._budget = ProcessorBudget(per_minute_s, time.monotonic)
        self._slots = AppSlots(processes)
        self._idle: list[SandboxProcess] = []
        self._tasks: set[asyncio.Task[JobResult]] = set()
        self.jobs: defaultdict[tuple[str, str], int] = defaultdict(int)  # by kind and result
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.restarts: defaultdict[str, int] = defaultdict(int)  # by reason

    @property
    def waiting(self) -> int:
        return len(self._slots)

    @property
    def pids(self) -> list[int]:
        """The idle processes."""
        return [each.pid for each in self._idle]

    async def run(self, app_id: str, job: Job) -> JobResult:
        self._check(app_id, job)
        # A caller that goes away does not stop a job: its process would have to be killed.
        task = asyncio.get_running_loop().create_task(self._run(app_id, job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the processes; jobs in progress are cancelled."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.kill() for each in self._idle))
        self._idle.clear()

    async def _run(self, app_id: str, job: Job) -> JobResult:
        await self._slots.take(app_id)
        try:
            # What came before it in the queue may have used the time up.
            self._check(app_id, job)
            return await self._do(app_id, job)
        finally:
            self._slots.leave(app_id)

    def _check(self, app_id: str, job: Job) -> None:
        try:
            self._budget.check(app_id)
        except TooManyRequests:
            self.jobs[type(job).__name__, "over_budget"] += 1
            raise

    async def _do(self, app_id: str, job: Job) -> JobResult:
        kind, message = type(job).__name__, _encode(job)
        while True:
            process = self._idle.pop() if self._idle else await self._start()
            try:
                answer = _decode(await process.run(message))
            except ProcessEnded as ended:
                self._note_end(app_id, kind, ended.reason)
                # What earlier jobs left in its memory may have ended it; a new process decides.
                if ended.reason == "crash" and process.jobs > 1:
                    continue
                return JobResult(faults=(job.exceeded,))
            except asyncio.CancelledError:
                await process.kill()
                raise
            self._idle.append(process)
            self._budget.charge(app_id, answer.cpu_s)
            self.cpu_s[kind] += answer.cpu_s
            self.jobs[kind, "refused" if answer.faults else "done"] += 1
            return answer

    async def _start(self) -> SandboxProcess:
        try:
            process = await SandboxProcess.start()
        except OSError as error:
            self._outage.begin(error.strerror or type(error).__name__)
            raise Overloaded("The process for templates and schemas cannot be started.") from error
        self._outage.end()
        return process

    def _note_end(self, app_id: str, kind: str, reason: str) -> None:
        get_logger().warning("sandbox_process_ended", app=app_id, job=kind, reason=reason)
        self._budget.charge(app_id, KILLED_S)
        self.restarts[reason] += 1
        self.jobs[kind, "killed"] += 1
