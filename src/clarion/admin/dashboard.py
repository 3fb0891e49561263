"""Answers everything under `/admin`: static files, and pages for those who may open them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import parse_qs, quote

from clarion.access.model import AdminCaller, AdminCredential, SignInStage, Visitor
from clarion.access.port import AdminAuthenticator
from clarion.admin.assets import PATH as ASSETS
from clarion.admin.assets import Assets
from clarion.admin.operations import Operations, Refused
from clarion.admin.page import AdminPage, Found, Pages
from clarion.admin.paths import ROOT
from clarion.admin.permissions import Open, check_allowed
from clarion.admin.rendering import Renderer
from clarion.admin.visit import Visit, redirect_to
from clarion.clock import Clock
from clarion.errors import (
    ClarionError,
    ConfirmationRequired,
    InternalError,
    MalformedBody,
    MethodNotAllowed,
    MfaRequired,
    NotFound,
    RequestError,
    TooManyRequests,
    Unauthenticated,
)
from clarion.http import problems
from clarion.http.asgi import FastRoute, Request, Response, Streamed, identity_of
from clarion.http.strangers import Peers
from clarion.http.visitors import (
    SESSION_COOKIE,
    check_same_site,
    csrf_token_of,
    read_cookie,
    read_credential,
    read_visitor,
)
from clarion.nodes.port import Limits, Quota
from clarion.settings import Settings
from clarion.telemetry.logs import get_logger

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; "
    b"frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"x-robots-tag", b"noindex"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)
_FORM = "application/x-www-form-urlencoded"
_FIELDS_LIMIT = 2_000
_WINDOW_S = 60
# As many as the front allows for signing in over the API, and counted together with those.
_SIGN_INS_PER_MINUTE = 120
_CHANGES = "POST"
# A page that updates itself: this is no use of the session, which ends when it is left alone.
_POLL = b"clarion-poll"
_STAGES = {
    SignInStage.NEEDS_TOTP: f"{ROOT}/sign-in/code",
    SignInStage.NEEDS_ENROLMENT: f"{ROOT}/second-factor",
}


class Dashboard:
    """Finds the page, identifies who asks, and shows errors as pages."""

    def __init__(
        self,
        *,
        pages: Sequence[AdminPage],
        operations: Operations,
        authenticator: AdminAuthenticator,
        check_visitor: Callable[[Visitor], None],
        limits: Limits,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._pages = Pages(pages)
        self._operations = operations
        self._authenticator = authenticator
        self._check_visitor = check_visitor
        self._limits = limits
        self._clock = clock
        self._peers = Peers.of(settings)
        self._per_minute = settings.admin_requests_per_minute
        self._assets = Assets()
        self._renderer = Renderer(self._assets)
        self.routes = (
            FastRoute("GET", "/", _lead_here),
            FastRoute("GET", ROOT, self.answer),
        )
        self.prefixes = {f"{ROOT}/": self.answer}

    async def answer(self, request: Request) -> Response | Streamed:
        """Answer a request under `/admin`."""
        path = request.scope["path"]
        if path.startswith(ASSETS):
            return self._answer_asset(path)
        visitor = read_visitor(request.scope, self._peers)
        request.scope["clarion.visitor"] = visitor
        answer = await self._answer_page(request, visitor)
        named = {name for name, _ in answer.headers}
        more = [each for each in _HEADERS if each[0] not in named]
        return answer._replace(headers=(*answer.headers, *more))

    def _answer_asset(self, path: str) -> Response:
        found = self._assets.find(path)
        if found is None:
            raise NotFound
        return found

    async def _answer_page(self, request: Request, visitor: Visitor) -> Response | Streamed:
        try:
            self._check_visitor(visitor)
            found = self._find(request)
            form = await _read_form(request) if found.page.method == _CHANGES else {}
            visit = await self._identify(request, found, form)
            return await found.page.answer(visit)
        except (ClarionError, Refused) as error:
            return await self._answer_error(self._begin(request, {}, {}), error)
        except Exception:  # noqa: BLE001 - people get a page in any case
            get_logger().exception("request_failed", request_id=request.id, path=f"{ROOT}/…")
            return await self._answer_error(self._begin(request, {}, {}), InternalError())

    def _find(self, request: Request) -> Found:
        method = request.scope["method"]
        found = self._pages.find("GET" if method == "HEAD" else method, request.scope["path"])
        if isinstance(found, Found):
            return found
        if found:
            raise MethodNotAllowed(found | ({"HEAD"} if "GET" in found else set()))
        raise NotFound("There is no such page.")

    async def _identify(self, request: Request, found: Found, form: dict[str, list[str]]) -> Visit:
        """Return the visit of an administrator who may open the page; an error for others."""
        page = found.page
        if page.needs is Open.STRANGERS:
            if page.method == _CHANGES:
                check_same_site(request.scope)
                # Without an address, by account alone.
                if address := request.scope["clarion.visitor"].address:
                    await self._count(f"sign_in:{address}", _SIGN_INS_PER_MINUTE)
            return self._begin(request, found.parts, form)
        credential = self._read_credential(request, found, form)
        is_use = _POLL not in request.headers
        caller = await self._authenticator.identify(credential, is_use=is_use)
        request.caller = caller
        await self._count(identity_of(caller), self._per_minute)
        check_allowed(page.needs, caller)
        return self._begin(request, found.parts, form)

    def _read_credential(
        self, request: Request, found: Found, form: dict[str, list[str]]
    ) -> AdminCredential:
        token = form.get("csrf_token", [None])[-1]
        credential = read_credential(request.scope, None, self._peers, csrf_token=token)
        if credential is None:
            raise Unauthenticated("Sign in first.")
        return replace(credential, app_id=found.parts.get("app_id"))

    async def _count(self, who: str, limit: int) -> None:
        _, allowance = await self._limits.take_all(
            (Quota(who, limit),), window_s=_WINDOW_S, now=self._clock.now()
        )
        if allowance.is_exceeded:
            detail = f"Too many requests in this minute: try again in {allowance.reset_s} seconds."
            raise TooManyRequests(allowance.reset_s, detail)

    def _begin(self, request: Request, parts: dict[str, str], form: dict[str, list[str]]) -> Visit:
        caller = request.caller if isinstance(request.caller, AdminCaller) else None
        secret = read_cookie(request.scope, SESSION_COOKIE)
        query = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return Visit(
            request=request,
            parts=parts,
            query={name: values[-1] for name, values in query.items()},
            form=form,
            caller=caller,
            csrf_token=csrf_token_of(secret) if caller and secret else "",
            operations=self._operations,
            renderer=self._renderer,
            clock=self._clock,
        )

    async def _answer_error(self, visit: Visit, error: ClarionError | Refused) -> Response:
        """Show an error, or the page on which it can be resolved."""
        request = visit.request
        if isinstance(error, ClarionError):
            problem = problems.describe(error, request.id)
            headers = problems.headers_of(error)[1:]
        else:
            problem, headers = error.problem, []
        if problem.code == Unauthenticated.code:
            return redirect_to(request, f"{ROOT}/sign-in{_back_to(request)}")
        if problem.code == MfaRequired.code and visit.caller:
            return redirect_to(request, _STAGES[visit.caller.stage])
        if problem.code == ConfirmationRequired.code:
            return redirect_to(request, f"{ROOT}/confirm{_back_to(request)}")
        page = await _show_error(visit, problem)
        kept = [each for each in headers if each[0] != b"www-authenticate"]
        return page._replace(headers=(*page.headers, *kept))


async def _show_error(visit: Visit, problem: problems.Problem) -> Response:
    """Show an error with the navigation, or without if the store does not even have that."""
    status = problem.status
    try:
        return await visit.render("error.html", status=status, shown=problem)
    except Refused:
        return await replace(visit, caller=None).render("error.html", status=status, shown=problem)


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a form, each with its values."""
    body = await request.body()
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if body and kind != _FORM:
        raise RequestError("Send the fields of the form as a browser does.")
    try:
        return parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_FIELDS_LIMIT,
        )
    except ValueError as error:
        raise MalformedBody("The fields of the form cannot be read.") from error


def _back_to(request: Request) -> str:
    """Return the query that makes a page redirect back to the requested one."""
    path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
    if request.scope["method"] == "GET" and query:
        path = f"{path}?{query}"
    return "" if path == ROOT else f"?next={quote(path, safe='/')}"


async def _lead_here(request: Request) -> Response:
    return redirect_to(request, ROOT)
