"""A process that a parent started: it ends with the parent, whatever it is doing."""

import json
import subprocess
import sys
from pathlib import Path

from clarion.app.processes.control import Start, open_pair, send_start
from clarion.settings import Settings
from tests.replacing import replace

# It has a handler that does nothing, and a loop that does not come round.
HANGING = """
import asyncio, socket, sys, time
from clarion.app.processes import member
from clarion.app.processes.control import Start
from tests.replacing import replace
from clarion.settings import Settings

member.STOP_MARGIN_S = 0.1

async def hang():
    control = socket.socket(fileno=int(sys.argv[1]))
    start = Start(replace(Settings(), grace_s=0), 1, ())
    async with member.Member(control, start, []).join(lambda: None):
        control.send(b"hangs")
        time.sleep(600)

asyncio.run(hang())
"""


def test_a_process_that_hangs_ends_when_its_parent_is_gone() -> None:
    ours, theirs = open_pair()
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", HANGING, str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        try:
            ours.settimeout(60)
            assert ours.recv(16) == b"hangs"
            assert process.poll() is None
            ours.close()
            assert process.wait(60) == 1
        finally:
            process.kill()
            process.wait()


def test_one_whose_parent_ends_while_it_starts_says_nothing_of_its_own(tmp_path: Path) -> None:
    """It could not say why it does not start, and printed the stack of that failure."""
    ours, theirs = open_pair()
    settings = replace(Settings(), data=tmp_path, database="postgresql://127.0.0.1:1/x")
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "clarion.app.processes.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        send_start(ours, Start(replace(settings, log_format="json"), 1, ()), ())
    printed = process.communicate(timeout=60)[1].splitlines()
    assert {json.loads(line)["event"] for line in printed} <= {"running_as_root"}
    assert process.returncode == 2
