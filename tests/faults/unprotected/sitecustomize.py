"""Runs first in every Python process that has this folder on its PYTHONPATH: it lacks a protection.

A fault test is worth something if it fails without what protects from the fault: these are the
controls of tests whose nodes are processes.
"""

import os

from clarion.push.catch_up import CatchUp
from clarion.push.recent_messages import RecentMessages
from clarion.store.postgres import runner


def give_up_after_one_conflict() -> None:
    """A batch that loses against another one is not run again."""
    runner.ATTEMPTS = 1


def look_for_nothing() -> None:
    """What other nodes store, and could not tell, is not looked for: neither now nor later."""

    async def look(_self: object) -> None:
        pass

    CatchUp.catch_up = look  # type: ignore[assignment, method-assign]
    RecentMessages.look_if_disconnected = look  # type: ignore[assignment, method-assign]


# The names are used in `tests/faults/test_cluster_*.py`.
WITHOUT = {"retries": give_up_after_one_conflict, "looks": look_for_nothing}
WITHOUT[os.environ["CLARION_TEST_WITHOUT"]]()
