"""Who makes a request, and whether it is below the limits of its caller."""

from __future__ import annotations

import asyncio
import contextlib

from clarion.access.model import AdminCredential, Caller
from clarion.access.port import Authenticators
from clarion.errors import RequestError, ServiceError
from clarion.http.asgi import Headers, Request, find_query
from clarion.http.quotas import RequestQuotas
from clarion.http.strangers import Peers
from clarion.http.visitors import check_same_site, is_admin_key, read_credential, read_visitor
from clarion.settings import Settings

# What nobody has a credential for yet: administrators sign in.
_SIGN_IN = frozenset({"/v1/admin/session", "/v1/admin/setup"})
# How often the session of an administrator is looked at while a stream is open.
_RECHECK_S = 2.0


class Admission:
    """Authenticates the callers of requests, and counts these against their limits."""

    def __init__(
        self, authenticators: Authenticators, quotas: RequestQuotas, settings: Settings
    ) -> None:
        self._callers, self._administrators = authenticators
        self._quotas = quotas
        self._peers = Peers.of(settings)
        self.ticket_paths: frozenset[str] = frozenset()  # take `?ticket=` in place of a header

    async def admit(self, request: Request, extra: Headers) -> Caller | None:
        """Return the caller, or None if an administrator signs in.

        The remaining quota is added to the headers of the response.
        """
        scope = request.scope
        if scope["path"].startswith("/v1/admin/"):
            scope["clarion.visitor"] = read_visitor(scope, self._peers)
            if scope["method"] == "POST" and scope["path"].removesuffix("/") in _SIGN_IN:
                check_same_site(scope)
                await self._quotas.count_sign_in(scope["clarion.visitor"].address, extra)
                return None
        caller = await self._identify(request)
        await self._quotas.count(caller, extra)
        return caller

    async def _identify(self, request: Request) -> Caller:
        authorization = request.header(b"authorization")
        if authorization is not None and not is_admin_key(authorization):
            return await self._callers.identify(authorization)
        scope = request.scope
        if authorization is None and scope["path"].removesuffix("/") in self.ticket_paths:
            ticket = find_query(scope, "ticket")
            if ticket is not None:
                return await self._callers.redeem(ticket)
        request.credential = read_credential(scope, authorization, self._peers)
        if request.credential is None:
            return await self._callers.identify(None)
        return await self._administrators.identify(request.credential)

    async def wait_ended(self, credential: AdminCredential) -> None:
        """Return when the session of an administrator has ended, or a key was revoked."""
        with contextlib.suppress(RequestError):
            while True:
                await asyncio.sleep(_RECHECK_S)
                with contextlib.suppress(ServiceError):  # the store is away for a moment
                    await self._administrators.identify(credential, is_use=False)
