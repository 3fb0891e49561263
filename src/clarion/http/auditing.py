"""Records in the audit log what requests did, before their responses are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from clarion.access.model import AdminCaller, AppCaller, Caller
from clarion.audit.model import Act, ActorKind, AuditResult
from clarion.audit.port import AuditLog, Recording
from clarion.clock import Clock
from clarion.errors import ClarionError
from clarion.http.asgi import Framework, Message, Receive, Scope, Send, identity_of
from clarion.http.strangers import Peers
from clarion.http.visitors import read_visitor
from clarion.nodes.port import Limits, Quota
from clarion.telemetry.outages import log_failure

if TYPE_CHECKING:
    from clarion.http.callers import ApiRequest

# Requests that were refused or failed get entries up to these limits in a minute: one caller or
# address, and all users of an app or all strangers together. Beyond that they are counted, so that
# nobody can fill the store with them, or hide behind them.
DENIALS_PER_MINUTE = 60
ALL_DENIALS_PER_MINUTE = 120
_WINDOW_S = 60
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_DENIED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
REQUEST_ID, CALLER = "clarion.request_id", "clarion.caller"  # set by the front
_ERROR = "clarion.error"
# Of an act of nobody, the address is all that is known.
_NOBODY = (ActorKind.NOBODY, "")


@dataclass(frozen=True, slots=True)
class AuditedFramework:
    """The framework, with a record of the requests that have an action.

    `actions` has the action of an operation (`POST /v1/keys`), or None if it is not recorded. A
    request that may change something and is not listed is recorded under its method and path.
    """

    framework: Framework
    log: AuditLog
    actions: Mapping[str, str | None]
    limits: Limits
    clock: Clock
    peers: Peers

    @property
    def routes(self) -> Sequence[Any]:
        return self.framework.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. If a success cannot be recorded, the error is raised instead.

        An entry is stored with the change, or else before the response.
        """
        failure: ClarionError | None = None

        async def send_recorded(message: Message) -> None:
            nonlocal failure
            if message["type"] == "http.response.start":
                failure = await self._finish(scope, recording, message["status"])
            if failure is None:
                await send(message)

        with self.log.record(partial(self._describe, scope)) as recording:
            await self.framework(scope, receive, send_recorded)
        if failure is not None:
            raise failure

    async def _finish(self, scope: Scope, recording: Recording, status: int) -> ClarionError | None:
        result = _result_of(status)
        if result is None or self._find_action(scope) is None:
            return None
        if result is not AuditResult.DONE and await self._is_flooding(scope):
            recording.count(result)
            return None
        try:
            await recording.finish(result, scope.get(_ERROR))
        except ClarionError as error:
            log_failure("audit_failed", error, request_id=scope[REQUEST_ID])
            return error if result is AuditResult.DONE else None
        return None

    async def _is_flooding(self, scope: Scope) -> bool:
        caller = scope[CALLER]
        if caller:
            who, others = identity_of(caller), caller.app_id or identity_of(caller)
        else:  # behind a TCP proxy nobody's address is known
            who, others = read_visitor(scope, self.peers).address, "nobody"
        quotas = [Quota(f"audit:{who}", DENIALS_PER_MINUTE)] if who else []
        quotas.append(Quota(f"audit of all:{others}", ALL_DENIALS_PER_MINUTE))
        taken = await self.limits.take_all(quotas, window_s=_WINDOW_S, now=self.clock.now())
        return taken.allowance.is_exceeded

    def _find_action(self, scope: Scope) -> str | None:
        template = scope.get("path_template")
        if not template:  # no handler was found
            return None
        operation = f"{scope['method']} {template}"
        default = None if scope["method"] in _READS else operation
        return self.actions.get(operation, default)

    def _describe(self, scope: Scope) -> Act | None:
        action = self._find_action(scope)
        if action is None:
            return None
        caller: Caller | None = scope[CALLER]
        kind, actor_id = _actor_of(caller)
        given = {name: str(value) for name, value in scope["path_params"].items()}
        app_id = given.pop("app_id", None)
        return Act(
            action=action,
            actor_kind=kind,
            actor_id=actor_id,
            app_id=app_id or (caller and caller.app_id) or "",
            user_id=given.pop("user_id", None),
            target=given,
            address=read_visitor(scope, self.peers).address,
            request_id=scope[REQUEST_ID],
        )


def note_error(request: ApiRequest, error: ClarionError) -> None:
    """Keep the code of the error that is the answer, for the entry of the request."""
    request.scope[_ERROR] = error.code  # type: ignore[literal-required]


def _result_of(status: int) -> AuditResult | None:
    """Return the result to record; None for a request that was wrong, and changed nothing."""
    if status < HTTPStatus.BAD_REQUEST:
        return AuditResult.DONE
    if status in _DENIED:
        return AuditResult.DENIED
    return AuditResult.FAILED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None


def _actor_of(caller: Caller | None) -> tuple[ActorKind, str]:
    match caller:
        case None:
            return _NOBODY
        case AdminCaller():
            return ActorKind.ADMINISTRATOR, caller.administrator_id
        case AppCaller():
            return ActorKind.API_KEY, caller.key_id
        case _:
            return ActorKind.USER, caller.user_id
