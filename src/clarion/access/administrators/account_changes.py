"""Changes to an administrator's sign-in and permissions, from the audit log.

An attacker who took over an account changes it: its owner must see that at the next sign-in.
"""

from __future__ import annotations

import msgspec

from clarion.access.administrators.model import FIRST, AdminSession
from clarion.audit.model import AuditResult, Entry, Filter
from clarion.audit.port import AuditLog

# What administrators do with their own account.
_OWN = (
    "password.change",
    "second_factor.add",
    "second_factor.remove",
    "recovery_codes.replace",
    "admin_key.create",
    "admin_key.revoke",
)
# What is done to an account with a set-up link, by other administrators, or by commands.
_OF_ANYBODY = (
    "administrator.set_up",
    "administrator.update",
    "administrator.reset",
    "admin.reset",
    "admin.disable",
    "admin.enable",
)
_SIGN_INS = ("session.start", "session.second_factor", "administrator.set_up")
_TOOK_EFFECT = frozenset({AuditResult.DONE, AuditResult.FAILED})
_SHOWN_MS = 90 * 24 * 3600 * 1000
# Of one action. Of changes to all accounts more are read, and those to others left out.
_SHOWN = 20
_READ = 100


class AccountChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to an account, newest first, and between which sign-ins they are new."""

    previous_sign_in_at: int | None
    signed_in_at: int
    entries: tuple[Entry, ...]

    def is_new(self, entry: Entry) -> bool:
        """Whether it happened between the previous sign-in and this one."""
        return (self.previous_sign_in_at or 0) < entry.created_at < self.signed_in_at


async def find_changes(
    audit_log: AuditLog, administrator_id: str, session: AdminSession | None, now: int
) -> AccountChanges:
    """Return the changes of the last 90 days, at most 20 of one kind of the owner.

    The previous sign-in is the last one before the session began.
    """
    await audit_log.link_waiting()
    since, entries = now - _SHOWN_MS, list[Entry]()
    for action in _OWN:
        wanted = Filter(action=action, actor_id=administrator_id, since=since)
        entries += (await audit_log.list(wanted, after=None, limit=_SHOWN)).items
    for action in _OF_ANYBODY:
        wanted = Filter(action=action, since=since)
        found = (await audit_log.list(wanted, after=None, limit=_READ)).items
        entries += [each for each in found if _is_about(each, administrator_id)]
    changed = [each for each in entries if each.result in _TOOK_EFFECT]
    before = session.created_at if session else now
    return AccountChanges(
        previous_sign_in_at=await _find_sign_in(audit_log, administrator_id, before),
        signed_in_at=before,
        entries=tuple(sorted(changed, key=lambda each: (each.created_at, each.id), reverse=True)),
    )


def _is_about(entry: Entry, administrator_id: str) -> bool:
    is_first = entry.target.get("administrator_id") == FIRST  # the link was for nobody yet
    about = entry.actor_id if is_first else entry.target.get("administrator_id")
    return about == administrator_id


async def _find_sign_in(audit_log: AuditLog, administrator_id: str, before: int) -> int | None:
    """Return when the administrator signed in last before a time; None if it is not known."""
    times = []
    for action in _SIGN_INS:
        wanted = Filter(action=action, actor_id=administrator_id, until=before)
        found = (await audit_log.list(wanted, after=None, limit=_SHOWN)).items
        times += [each.created_at for each in found if _is_finished(each)][:1]
    return max(times, default=None)


def _is_finished(entry: Entry) -> bool:
    """Whether the sign-in was complete; one that stopped before the second factor was not."""
    stage = entry.target.get("stage", "signed_in")
    return entry.result is AuditResult.DONE and stage == "signed_in"
