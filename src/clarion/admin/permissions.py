"""Who may open a page, and to whom its links and buttons are shown."""

from __future__ import annotations

from enum import Enum

from clarion.access.model import (
    SCOPES_OF,
    AdminCaller,
    Role,
    Scope,
    SignInStage,
    require_admin,
    require_any_admin,
    require_app,
)


class Open(Enum):
    """Pages for visitors who have not finished signing in."""

    STRANGERS = "visitors without a session"
    SIGNING_IN = "visitors with a session, in any stage of signing in"


# A scope is that of the app in the path, a role that for all apps; None is any administrator.
Needs = Scope | Role | Open | None


def check_allowed(needs: Needs, caller: AdminCaller) -> None:
    """Raise an error if an administrator may not open a page, before anything of it is read."""
    match needs:
        case Scope():
            require_app(caller, needs)
        case Role():
            require_admin(caller, needs)
        case None:
            require_any_admin(caller)
        case Open():
            pass


def may_open(needs: Needs, caller: AdminCaller | None, app_id: str | None) -> bool:
    """Whether to show a link or a button that needs this."""
    if caller is None or caller.stage is not SignInStage.SIGNED_IN:
        return False
    match needs:
        case Scope():
            role = caller.role_for(app_id) if app_id else None
            return role is not None and needs in SCOPES_OF[role]
        case Role():
            return caller.role is not None and caller.role.covers(needs)
        case None:
            return True
        case Open():
            return False


def parse_needs(text: str) -> Scope | Role:
    """Return the scope or role that a template names; `ValueError` if there is none."""
    return Scope(text) if ":" in text else Role(text)
