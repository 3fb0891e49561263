"""Commands of the command line in the audit log: the first unit that a command writes has an entry.

A command needs no code for that. It may add details with `AuditLog.describe`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from clarion.audit.model import Act, ActorKind, AuditResult
from clarion.errors import ClarionError

if TYPE_CHECKING:  # every command imports this module, and few the store
    from clarion.audit.sql import AuditLog

# The action of the running command, such as `key.create`; None in a server.
command: ContextVar[str | None] = ContextVar("command", default=None)


@contextlib.asynccontextmanager
async def record_command(log: AuditLog) -> AsyncIterator[None]:
    """Record the running command, if it writes something."""
    act = _find_act()
    if act is None:
        yield
        return
    with log.record(lambda: act) as recording:
        try:
            yield
        except ClarionError as error:
            if recording.is_written:
                await recording.finish(AuditResult.FAILED, error.code)
            raise
    await log.link_waiting()


async def record_finished(log: AuditLog, **target: str) -> None:
    """Record the running command, which wrote nothing that would carry the entry."""
    act = _find_act()
    with log.record(lambda: act) as recording:
        log.describe(**target)
        await recording.finish(AuditResult.DONE)


def _find_act() -> Act | None:
    action = command.get()
    if action is None:
        return None
    return Act(action=action, actor_kind=ActorKind.COMMAND, actor_id=_find_account())


def _find_account() -> str:
    """Return the account of the operating system that runs the command."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in a container: a number without a name
        return str(os.getuid())
