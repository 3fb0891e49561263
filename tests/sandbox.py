"""The sandbox in this process: no limits, and the same messages."""

from functools import partial

import msgspec

from clarion.catalog.sandbox.child import do
from clarion.catalog.sandbox.jobs import Job, JobResult


class DirectSandbox:
    """The `Sandbox` port."""

    async def run(self, app_id: str, job: Job) -> JobResult:
        assert app_id
        return do(msgspec.json.decode(msgspec.json.encode(job), type=Job))


run_directly = partial(DirectSandbox().run, "app")
