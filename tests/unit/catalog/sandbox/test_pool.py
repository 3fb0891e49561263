"""The sandbox with its real processes: what exceeds a limit ends its process, and harms nobody."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clarion.catalog.sandbox.jobs import (
    JOB_CPU_S,
    CheckSchema,
    CheckTemplate,
    ConvertMjml,
    FindFaults,
    JobResult,
    Render,
)
from clarion.catalog.sandbox.pool import ProcessSandbox
from clarion.errors import FieldFault, TooManyRequests

PLAIN = Render(None, "{{ a | upcase }}", is_html=False, context={"a": "x"})
# Each level asks twice for the same value, which no count at rest can see.
BRANCHING: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "anyOf": [
                {"required": ["no"], "properties": {"c": {"$ref": "#/$defs/node"}}},
                {"required": ["no"], "properties": {"c": {"$ref": "#/$defs/node"}}},
            ]
        }
    },
}


def nest(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for _ in range(levels):
        data = {"c": data}
    return data


def check(document: dict[str, Any], data: dict[str, Any]) -> FindFaults:
    return FindFaults(msgspec.Raw(msgspec.json.encode(document)), data)


HOSTILE = check(BRANCHING, nest(60))


@pytest.fixture
async def sandbox() -> AsyncIterator[ProcessSandbox]:
    sandbox = ProcessSandbox(per_minute_s=60)
    yield sandbox
    await sandbox.close()


async def test_jobs_are_answered(sandbox: ProcessSandbox) -> None:
    assert (await sandbox.run("app", PLAIN)).body == "X"
    assert (await sandbox.run("app", CheckSchema({"type": "objekt"}))).faults[0].field == (
        "data_schema"
    )
    assert (await sandbox.run("app", CheckTemplate(None, "{{ a }}", ("a",)))).faults == ()
    assert (await sandbox.run("app", check({"required": ["a"]}, {}))).faults == (
        FieldFault("data.a", "is required"),
    )
    assert sandbox.jobs == {
        ("Render", "done"): 1,
        ("CheckSchema", "refused"): 1,
        ("CheckTemplate", "done"): 1,
        ("FindFaults", "refused"): 1,
    }
    assert sandbox.restarts == {}


async def test_a_job_that_exceeds_a_limit_fails_alone(sandbox: ProcessSandbox) -> None:
    job = HOSTILE
    others = [asyncio.create_task(sandbox.run("app", PLAIN)) for _ in range(3)]
    answer = await sandbox.run("app", job)
    assert answer.faults == (job.exceeded,)
    assert "exceed" in job.exceeded.reason or "takes more than 0.25 s" in job.exceeded.reason
    others += [asyncio.create_task(sandbox.run("app", PLAIN)) for _ in range(3)]
    assert {each.body for each in await asyncio.gather(*others)} == {"X"}
    assert sum(sandbox.restarts.values()) >= 1


async def test_a_hostile_app_does_not_delay_another(sandbox: ProcessSandbox) -> None:
    await asyncio.gather(sandbox.run("quiet", PLAIN), sandbox.run("noisy", PLAIN))
    noisy = [asyncio.create_task(sandbox.run("noisy", HOSTILE)) for _ in range(40)]
    await asyncio.sleep(0)
    for _ in range(10):
        assert (await sandbox.run("quiet", PLAIN)).body == "X"
    # It got ten answers while the other had hardly any: it waits for no more than one at a time.
    assert sum(each.done() for each in noisy) < 20
    for each in noisy:
        each.cancel()


async def test_time_that_is_used_up_is_refused_until_later() -> None:
    sandbox = ProcessSandbox(per_minute_s=1)
    try:
        for _ in range(2):
            assert (await sandbox.run("noisy", HOSTILE)).faults
        with pytest.raises(TooManyRequests) as caught:
            await sandbox.run("noisy", PLAIN)
        assert 1 <= caught.value.retry_after_s <= 60
        assert sandbox.jobs["Render", "over_budget"] == 1
        assert (await sandbox.run("quiet", PLAIN)).body == "X"
    finally:
        await sandbox.close()


async def test_a_killed_process_is_replaced(sandbox: ProcessSandbox) -> None:
    for _ in range(3):
        assert (await sandbox.run("app", PLAIN)).body == "X"
        (pid,) = sandbox.pids
        os.kill(pid, signal.SIGKILL)
    assert (await sandbox.run("app", PLAIN)).body == "X"


async def test_a_caller_that_goes_away_costs_no_process(sandbox: ProcessSandbox) -> None:
    await sandbox.run("app", PLAIN)
    pids = sandbox.pids
    for _ in range(20):
        asking = asyncio.create_task(sandbox.run("app", PLAIN))
        await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
    assert (await sandbox.run("app", PLAIN)).body == "X"
    assert sandbox.pids == pids


async def test_close_leaves_no_process(sandbox: ProcessSandbox) -> None:
    running = asyncio.create_task(sandbox.run("a", HOSTILE))
    await sandbox.run("b", PLAIN)
    pids = sandbox.pids
    await sandbox.close()
    # On a busy machine it may have reached its limit before.
    with contextlib.suppress(asyncio.CancelledError):
        assert (await running).faults
    assert not any(map(_is_running, pids))


async def test_memory_is_limited(sandbox: ProcessSandbox) -> None:
    big = ["x" * 200] * 8_000
    body = "{% assign b = a | join: c | split: '' %}" * 200 + "{{ b | size }}"
    answer = await sandbox.run(
        "app", Render(None, body, is_html=False, context={"a": big, "c": "y"})
    )
    assert answer.faults
    assert (await sandbox.run("app", PLAIN)).body == "X"


SERVER = """
import asyncio, sys
from clarion.catalog.sandbox.jobs import Render
from clarion.catalog.sandbox.pool import ProcessSandbox

async def main():
    sandbox = ProcessSandbox(60)
    await sandbox.run("app", Render(None, "{{ a | upcase }}", False, {"a": "x"}))
    print(*sandbox.pids, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_server_that_is_killed_leaves_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout
        pid = int(server.stdout.readline())
        server.kill()
    give_up = time.monotonic() + 10
    while _is_running(pid):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def test_the_processor_time_is_reported(sandbox: ProcessSandbox) -> None:
    body = "{% for i in (1..900) %}{{ i | times: 3 | plus: 4 }}{% endfor %}"
    answer: JobResult = await sandbox.run("app", Render(None, body, is_html=False, context={}))
    assert 0.0005 < answer.cpu_s < JOB_CPU_S
    assert sandbox.cpu_s["Render"] == answer.cpu_s


@pytest.mark.parametrize(
    "body",
    [
        "<mjml><mj-body>" + "<mj-section>" * 2_700 + "</mj-section>" * 2_700 + "</mj-body></mjml>",
        "<mjml><mj-body>" + "<mj-wrapper>" * 5_000,
        # 80 MB of HTML.
        "<mjml><mj-head><mj-attributes><mj-text font-family='" + "a" * 20_000 + "'/>"
        "</mj-attributes></mj-head><mj-body><mj-section><mj-column>"
        + "<mj-text/>" * 4_000
        + "</mj-column></mj-section></mj-body></mjml>",
        "<mjml><mj-body><mj-section>" + "<mj-column/>" * 5_000 + "</mj-section></mj-body></mjml>",
        "<mjml><mj-body><mj-include path='/etc/passwd' type='html' /></mj-body></mjml>",
        "<mjml><mj-body><mj-include path='file:///etc/passwd' /></mj-body></mjml>",
    ],
    ids=["deep", "open", "amplified", "wide", "file", "url"],
)
async def test_hostile_mjml_is_refused_and_harms_nobody(sandbox: ProcessSandbox, body: str) -> None:
    await sandbox.run("app", PLAIN)
    for job in (CheckTemplate(None, body, (), is_mjml=True), ConvertMjml(body)):
        answer = await sandbox.run("app", job)
        assert [fault.field for fault in answer.faults] == ["body"]
        assert "root:" not in answer.body
    assert (await sandbox.run("app", PLAIN)).body == "X"
