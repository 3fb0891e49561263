"""Which administrators may use the operations on accounts and sessions.

An admin API key may use none of them: it must not be a way to other credentials.
"""

from __future__ import annotations

from clarion.access.administrators.policy import CONFIRMED_MS
from clarion.access.model import (
    AdminCaller,
    Role,
    SignInStage,
    require_admin,
    require_any_admin,
)
from clarion.clock import Clock
from clarion.errors import ConfirmationRequired, Conflict, Forbidden
from clarion.http.callers import ApiRequest, caller_of


def session_of(request: ApiRequest, *stages: SignInStage) -> AdminCaller:
    """Return the administrator of a session, in any stage of signing in, or in one of these."""
    caller = caller_of(request)
    if not isinstance(caller, AdminCaller):
        return require_any_admin(caller)
    if caller.session_id is None:
        raise Forbidden("An admin API key cannot do this: sign in.")
    if stages and caller.stage not in stages:
        raise Conflict("The sign-in of this session is finished, or another step is next.")
    return caller


def signed_in(request: ApiRequest) -> AdminCaller:
    """Return the administrator of a session in which the sign-in is finished."""
    return require_any_admin(session_of(request))


def confirmed(request: ApiRequest, clock: Clock) -> AdminCaller:
    """Return the administrator of a session in which the password was given lately."""
    caller = signed_in(request)
    _check_confirmed(caller, clock)
    return caller


def check_creator(request: ApiRequest, clock: Clock) -> None:
    """Raise `ConfirmationRequired` if a session that was not confirmed lately creates credentials.

    API keys need no confirmation: keys that they create expire no later than they do.
    """
    caller = caller_of(request)
    if isinstance(caller, AdminCaller) and caller.session_id is not None:
        _check_confirmed(caller, clock)


def operator(request: ApiRequest, clock: Clock) -> AdminCaller:
    """Return a confirmed administrator with the role admin for all apps."""
    caller = require_admin(session_of(request), Role.ADMIN)
    _check_confirmed(caller, clock)
    return caller


def _check_confirmed(caller: AdminCaller, clock: Clock) -> None:
    if not 0 <= clock.now() - caller.confirmed_at <= CONFIRMED_MS:
        raise ConfirmationRequired
