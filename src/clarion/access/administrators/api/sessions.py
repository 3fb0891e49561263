"""Sessions of administrators over HTTP: signing in and out, passwords, set-up links."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.datastructures import Cookie
from litestar.openapi.spec import SecurityRequirement

from clarion.access.administrators.api.callers import session_of, signed_in
from clarion.access.administrators.model import Administrator, AdminSession
from clarion.access.administrators.passwords import LEAST, MOST
from clarion.access.administrators.policy import TRUSTED_MS, SignInPolicy
from clarion.access.administrators.sign_in import SignIn, Started
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.model import AdminCaller, Role, SignInStage, require_any_admin
from clarion.clock import Clock, to_rfc3339
from clarion.errors import Conflict, NotFound
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, caller_of, visitor_of
from clarion.http.dependencies import Injected
from clarion.http.views import Timestamp, View
from clarion.http.visitors import (
    DEVICE_COOKIE,
    SESSION_COOKIE,
    csrf_token_of,
)

TAGS = ("Administrators",)
# Before a sign-in there is no credential.
NO_CREDENTIAL: list[SecurityRequirement] = [{}]
# What is sent as a name, password or code is not longer than this.
_Text = Annotated[str, msgspec.Meta(max_length=MOST)]
_NewPassword = Annotated[
    str,
    msgspec.Meta(
        description=f"{LEAST} to {MOST} characters; the most common are refused.",
        extra_json_schema={"minLength": LEAST, "maxLength": MOST},
    ),
]

SessionId = Annotated[
    str, msgspec.Meta(description="The id of the session, from the list of sessions.")
]


class SignInBody(Body):
    """Who signs in."""

    username: _Text
    """The name of the administrator."""
    password: _Text
    """The password of this administrator."""


class CodeBody(Body):
    """A second factor: the six digits of an authenticator app, or a recovery code.

    With `trust_device`, this browser is not asked for it for 30 days.
    """

    code: _Text
    """Six digits of an authenticator app, or a recovery code."""
    trust_device: bool = False
    """Whether this browser is not asked for a code for 30 days."""


class PasswordBody(Body):
    """The password of the administrator who is signed in."""

    password: _Text
    """The password of the administrator who is signed in."""


class PasswordChange(Body):
    """The password, and the one to use from now on."""

    current_password: _Text
    """The password so far."""
    password: _NewPassword


class SetupBody(Body):
    """The use of a set-up link: `token` is the part after the `#`.

    The first administrator chooses a username; others already have one.
    """

    token: _Text
    """What follows the `#` in the set-up link."""
    password: _NewPassword
    username: _Text | None = None
    """The name to sign in with, for the first administrator; others have one."""


class SessionView(View):
    """A session, and who is signed in.

    `stage` is the next step: `needs_totp` (send a code to `/v1/admin/session/totp`),
    `needs_enrolment` (set up a second factor with `/v1/admin/totp`), or nothing: `signed_in`. Send
    `csrf_token` in the header `Clarion-CSRF-Token` of every request that changes something.
    """

    administrator_id: str
    """Who is signed in, by id."""
    username: str
    """The name of the administrator."""
    role: Role | None
    """The role for all apps; null: none."""
    app_roles: dict[str, Role]
    """The roles for single apps, by app id."""
    stage: SignInStage
    """The next step of the sign-in, or `signed_in`."""
    has_mfa: bool
    """Whether a second factor was given."""
    session_id: str | None
    """The id of the session; null for an admin API key."""
    expires_at: Timestamp | None
    """When the session ends; null for an admin API key."""
    csrf_token: str | None
    """To be sent in the header `Clarion-CSRF-Token`; null for an admin API key."""


class SessionItem(View):
    """A session in a list; `is_current` is true for the session of this request."""

    id: str
    """The id of the session, from the list of sessions."""
    created_at: Timestamp
    """When it began."""
    last_seen_at: Timestamp
    """When it was used last."""
    expires_at: Timestamp
    """When it ends."""
    address: str
    """The address it was begun from."""
    user_agent: str
    """The browser it was begun with."""
    has_mfa: bool
    """Whether a second factor was given."""
    is_current: bool
    """Whether it is the session that asks."""


class SessionList(View):
    """The sessions of an administrator, at most 40, newest first."""

    items: list[SessionItem]
    """The sessions, newest first."""


class EndedSessions(View):
    """How many sessions were ended."""

    ended: int
    """How many sessions were ended."""


class SessionController(Controller):
    """The session of the calling administrator."""

    path = "/v1/admin/session"
    tags = TAGS

    @post(summary="Sign in", status_code=201, security=NO_CREDENTIAL)
    async def sign_in(
        self, request: ApiRequest, data: SignInBody, sign_in: Injected[SignIn]
    ) -> Response[SessionView]:
        """Start a session with a password; its secret is in the cookie of the response.

        An unknown name and a wrong password have the same response. After too many failures the
        account is locked for a while for this address (429).
        """
        started = await sign_in.by_password(data.username, data.password, visitor_of(request))
        return answer_started(started, status=201)

    @get(summary="Get the session")
    async def get_session(self, request: ApiRequest) -> SessionView:
        """Return who is signed in, and the next step of the sign-in."""
        caller = caller_of(request)
        if not isinstance(caller, AdminCaller):
            caller = require_any_admin(caller)
        secret = request.cookies.get(SESSION_COOKIE) if caller.session_id else None
        return SessionView.of(caller, csrf_token=secret and csrf_token_of(secret))

    @delete(summary="Sign out", status_code=204)
    async def sign_out(self, request: ApiRequest, admins: Injected[AdminStores]) -> Response[None]:
        """End the session; trusted devices stay."""
        caller = session_of(request)
        await admins.sessions.end(caller.administrator_id, caller.session_id or "")
        return Response(None, status_code=204, cookies=[_forget(SESSION_COOKIE)])

    @post("/totp", summary="Give a second factor", status_code=200, errors=(Conflict,))
    async def give_code(
        self, request: ApiRequest, data: CodeBody, sign_in: Injected[SignIn]
    ) -> Response[SessionView]:
        """Finish a sign-in. The session gets a new secret; each code is accepted once."""
        caller = session_of(request, SignInStage.NEEDS_TOTP)
        started = await sign_in.by_code(
            caller, data.code, visitor_of(request), trusts_device=data.trust_device
        )
        return answer_started(started)

    @post("/confirm", summary="Confirm the password", status_code=204)
    async def confirm(
        self, request: ApiRequest, data: PasswordBody, sign_in: Injected[SignIn]
    ) -> None:
        """Allow actions that need the password, like creating an admin API key, for 10 minutes."""
        await sign_in.confirm(signed_in(request), data.password)


class SessionsController(Controller):
    """All sessions of the calling administrator."""

    path = "/v1/admin/sessions"
    tags = TAGS

    @get(summary="List sessions")
    async def list_sessions(
        self,
        request: ApiRequest,
        admins: Injected[AdminStores],
        sign_in_policy: Injected[SignInPolicy],
        clock: Injected[Clock],
    ) -> SessionList:
        """Return the sessions of the calling administrator that have not ended."""
        caller, now = signed_in(request), clock.now()
        sessions = await admins.sessions.list(caller.administrator_id)
        live = [session for session in sessions if sign_in_policy.is_live(session, now)]
        return SessionList(items=[_item(session, caller) for session in live])

    @delete(summary="Sign out everywhere", status_code=200)
    async def end_all(
        self, request: ApiRequest, admins: Injected[AdminStores]
    ) -> Response[EndedSessions]:
        """End all sessions, including this one, and remove all trusted devices."""
        caller = signed_in(request)
        ended = await admins.sessions.end_all(caller.administrator_id)
        cookies = [_forget(SESSION_COOKIE), _forget(DEVICE_COOKIE)]
        return Response(EndedSessions(ended=ended), status_code=200, cookies=cookies)

    @delete("/{session_id:str}", summary="End a session", status_code=204)
    async def end_session(
        self, request: ApiRequest, session_id: SessionId, admins: Injected[AdminStores]
    ) -> None:
        """End one session of the calling administrator."""
        caller = signed_in(request)
        if not await admins.sessions.end(caller.administrator_id, session_id):
            raise NotFound("There is no session with this id.")


@put("/v1/admin/password", summary="Change the password", tags=TAGS)
async def change_password(
    request: ApiRequest, data: PasswordChange, sign_in: Injected[SignIn]
) -> Response[SessionView]:
    """Change the caller's own password. All other sessions and trusted devices end."""
    caller = signed_in(request)
    started = await sign_in.change_password(
        caller, data.current_password, data.password, visitor_of(request)
    )
    return answer_started(started)


@post(
    "/v1/admin/setup",
    summary="Use a set-up link",
    tags=TAGS,
    status_code=201,
    security=NO_CREDENTIAL,
)
async def set_up(
    request: ApiRequest, data: SetupBody, sign_in: Injected[SignIn]
) -> Response[SessionView]:
    """Create the first administrator, or set the password of another, and sign in.

    A link can be used once, within 24 hours.
    """
    started = await sign_in.by_link(data.token, data.username, data.password, visitor_of(request))
    return answer_started(started, status=201)


def answer_started(started: Started, *, status: int = 200) -> Response[SessionView]:
    """Return a new session, and set its cookies."""
    cookies = [_cookie(SESSION_COOKIE, started.secret)]
    if started.device_token:
        cookies.append(_cookie(DEVICE_COOKIE, started.device_token, TRUSTED_MS // 1000))
    return Response(view_started(started), status_code=status, cookies=cookies)


def view_started(started: Started) -> SessionView:
    account: Administrator = started.administrator
    return SessionView.of(
        account,
        administrator_id=account.id,
        stage=started.stage,
        has_mfa=started.session.mfa_at is not None,
        session_id=started.session.id,
        expires_at=to_rfc3339(started.session.expires_at),
        csrf_token=csrf_token_of(started.secret),
    )


def session_cookie(started: Started) -> Cookie:
    return _cookie(SESSION_COOKIE, started.secret)


def _cookie(name: str, value: str, max_age_s: int | None = None) -> Cookie:
    """Return a cookie that no script can read, and that no other host can set.

    Browsers take a `Secure` cookie from a plain listener, too, if it is on the same machine.
    """
    return Cookie(
        key=name,
        value=value,
        path="/",
        max_age=max_age_s,
        secure=True,
        httponly=True,
        samesite="lax",
    )


def _forget(name: str) -> Cookie:
    return _cookie(name, "", 0)


def _item(session: AdminSession, caller: AdminCaller) -> SessionItem:
    return SessionItem.of(
        session,
        has_mfa=session.mfa_at is not None,
        is_current=session.id == caller.session_id,
    )


ROUTES = (SessionController, SessionsController, change_password, set_up)
