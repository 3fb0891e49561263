"""The second factor of administrators over HTTP."""

from __future__ import annotations

from litestar import Controller, Response, delete, post

from clarion.access.administrators.api.callers import confirmed, session_of
from clarion.access.administrators.api.sessions import (
    TAGS,
    SessionView,
    session_cookie,
    view_started,
)
from clarion.access.administrators.policy import SignInPolicy
from clarion.access.administrators.second_factor import Enrolment
from clarion.access.administrators.sign_in import SignIn
from clarion.access.administrators.sql.stores import AdminStores
from clarion.access.model import AdminCaller, SignInStage
from clarion.clock import Clock
from clarion.errors import Conflict
from clarion.http.bodies import Body
from clarion.http.callers import ApiRequest, visitor_of
from clarion.http.dependencies import Injected
from clarion.http.views import View


class TotpView(View):
    """A secret for an authenticator app; `uri` is the content of its QR code."""

    secret: str
    """The secret, in base32, to be typed into an authenticator app."""
    uri: str
    """The same as an `otpauth:` URI, for a QR code."""


class TotpCode(Body):
    """The six digits that the authenticator app shows for the new secret."""

    code: str
    """Six digits."""


class RecoveryCodes(View):
    """Codes that each replace a code of the authenticator app once. They are shown only here."""

    recovery_codes: list[str]
    """Ten codes. Store them: they are returned this once."""


class Enrolled(View):
    """New recovery codes, and the session, which has a new secret."""

    recovery_codes: list[str]
    """Ten codes. Store them: they are returned this once."""
    session: SessionView
    """The session, which has a new secret."""


class TotpController(Controller):
    """The authenticator app of the calling administrator."""

    path = "/v1/admin/totp"
    tags = TAGS

    @post(summary="Set up an authenticator app", status_code=201, errors=(Conflict,))
    async def begin(
        self, request: ApiRequest, enrolment: Injected[Enrolment], clock: Injected[Clock]
    ) -> TotpView:
        """Return a new secret. It takes effect when its first code is confirmed.

        If there already is a second factor, the password must have been given in the last 10
        minutes, and the old secret stays valid until the new one is confirmed.
        """
        new = await enrolment.begin(_enrolling(request, clock))
        return TotpView.of(new)

    @post("/confirm", summary="Confirm an authenticator app", status_code=200, errors=(Conflict,))
    async def confirm(
        self,
        request: ApiRequest,
        data: TotpCode,
        enrolment: Injected[Enrolment],
        sign_in: Injected[SignIn],
        clock: Injected[Clock],
    ) -> Response[Enrolled]:
        """Confirm the new authenticator secret with a code. The session gets a new secret, too."""
        caller = _enrolling(request, clock)
        codes = await enrolment.confirm(caller, data.code)
        started = await sign_in.renew(caller, visitor_of(request), has_mfa=True)
        answer = Enrolled(recovery_codes=codes, session=view_started(started))
        return Response(answer, status_code=200, cookies=[session_cookie(started)])

    @delete(summary="Remove the authenticator app", status_code=204, errors=(Conflict,))
    async def remove(
        self,
        request: ApiRequest,
        enrolment: Injected[Enrolment],
        admins: Injected[AdminStores],
        sign_in_policy: Injected[SignInPolicy],
        clock: Injected[Clock],
    ) -> None:
        """Remove the second factor and the recovery codes, unless the account must have one."""
        caller = confirmed(request, clock)
        account = await admins.accounts.get(caller.administrator_id)
        if account is None or sign_in_policy.needs_mfa(account):
            raise Conflict("This administrator needs a second factor; it can only be replaced.")
        await enrolment.remove(caller)


@post(
    "/v1/admin/recovery-codes",
    summary="Replace the recovery codes",
    tags=TAGS,
    status_code=201,
    errors=(Conflict,),
)
async def renew_codes(
    request: ApiRequest, enrolment: Injected[Enrolment], clock: Injected[Clock]
) -> RecoveryCodes:
    """Return ten new recovery codes, only once; the old ones are refused."""
    codes = await enrolment.renew_codes(confirmed(request, clock))
    return RecoveryCodes(recovery_codes=codes)


def _enrolling(request: ApiRequest, clock: Clock) -> AdminCaller:
    caller = session_of(request)
    return caller if caller.stage is SignInStage.NEEDS_ENROLMENT else confirmed(request, clock)


ROUTES = (TotpController, renew_codes)
