"""The claims that this process holds.

A lease ends by the time of day, which can be set forward: then this process claims jobs that it is
working on. Such a claim renews the lease and starts no second run. A job that made progress in the
meantime, such as one whose user has changed their preferences, is begun again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from clarion.events.model import TOKEN_STEP, Job

# How long a claim holds, unless it is renewed. The jobs of a node that died are released earlier:
# see `nodes/membership.py`.
LEASE_MS = 45_000
# A claim that is still held is renewed when this much of its lease is left.
RENEWED_MS = 25_000
RENEW_EVERY_S = 5.0
# The fencing token of a job that is claimed when it is added.
FIRST_TOKEN = 1


class Leases:
    """Counts the holders of each claimed job, and knows the token of its latest claim."""

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self._renewed: dict[str, int] = {}
        # The latest claims of the held jobs; `due_at` is the end of the lease.
        self._claims: dict[str, Job] = {}
        # When the claims in progress began.
        self._claiming: list[int] = []

    def __len__(self) -> int:
        return len(self._holders)

    def hold(self, job: Job) -> None:
        """Keep a claim until it is released as often as it is held."""
        self._holders[job.id] = self._holders.get(job.id, 0) + 1
        self._claims.setdefault(job.id, job)

    def take(self, claimed: Iterable[Job]) -> list[Job]:
        """Hold claimed jobs; return those that this process is not working on yet.

        If a job has made progress since, the outcome of the running work will be refused.
        """
        new: list[Job] = []
        for job in claimed:
            before = self._claims.get(job.id)
            self._claims[job.id] = job
            if before is not None and _is_same_run(before.token, job.token):
                self._renewed[job.id] = job.token
            else:
                self._holders[job.id] = self._holders.get(job.id, 0) + 1
                new.append(job)
        return new

    @contextmanager
    def claiming(self, now: int) -> Iterator[None]:
        """Claim jobs at a time, and take them, within this block."""
        self._claiming.append(now)
        try:
            yield
        finally:
            self._claiming.remove(now)

    def find_oldest_claim(self, before: int) -> int:
        """Return when the oldest running claim began, or this time if that is earlier."""
        return min((before, *self._claiming))

    def list_held(self) -> dict[str, list[str]]:
        """Return the ids of the held jobs by app."""
        held: dict[str, list[str]] = {}
        for job in self._claims.values():
            held.setdefault(job.app_id, []).append(job.id)
        return held

    def release(self, jobs: Iterable[Job]) -> None:
        """End one holder of each of the jobs."""
        for job in jobs:
            left = self._holders.pop(job.id, 0) - 1
            if left > 0:
                self._holders[job.id] = left
            else:
                self._renewed.pop(job.id, None)
                self._claims.pop(job.id, None)

    def find_ending(self, before: int) -> list[Job]:
        """Return the held jobs whose leases end before a time, with their latest tokens."""
        return [job for job in self._claims.values() if job.due_at < before]

    def prolong(self, job_ids: Iterable[str], until: int) -> None:
        """Note that leases were extended."""
        for job_id in job_ids:
            if (job := self._claims.get(job_id)) is not None:
                self._claims[job_id] = replace(job, due_at=until)

    def is_renewed(self, job: Job) -> bool:
        """Whether there was a later claim than that of the job."""
        return self.renew(job).token != job.token

    def renew(self, job: Job) -> Job:
        """Return the job with the token of its latest claim."""
        token = self._renewed.get(job.id, job.token)
        return replace(job, token=token) if _is_same_run(token, job.token) else job

    def renew_all(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return the jobs with the tokens of their latest claims; mostly these are the same."""
        return [self.renew(job) for job in jobs] if self._renewed else jobs


def _is_same_run(one: int, other: int) -> bool:
    """Whether a job has made no progress between two claims."""
    return one // TOKEN_STEP == other // TOKEN_STEP
