"""`Idempotency-Key`: the first response is stored for 24 hours and sent again to a repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from clarion.access.model import Caller, UserCaller
from clarion.access.port import Vault
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields
from clarion.idempotency.model import IdempotencyClaim, StoredResponse, answer_context

if TYPE_CHECKING:
    from litestar import Response

    from clarion.http.callers import ApiRequest

KEY_LENGTH = 255
KEPT_MS = 24 * 3600 * 1000
T = TypeVar("T", bound=msgspec.Struct)
# Commits work with a claim, and returns the stored response if the request is a repeat.
Write = Callable[[IdempotencyClaim | None], Awaitable[StoredResponse | None]]


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Makes the claims of requests with an idempotency key, and sends stored responses."""

    vault: Vault
    clock: Clock

    async def once(
        self,
        request: ApiRequest,
        key: str | None,
        answer: msgspec.Struct,
        user_id: str | None = None,
    ) -> IdempotencyClaim | None:
        """Return the claim to commit with the work; None if the request has no key."""
        if key is None:
            return None
        asked = fingerprint(request.method, request.url.path, await request.body())
        caller: Caller = request.scope["clarion.caller"]  # type: ignore[typeddict-item]
        return self.claim(key, caller, asked, msgspec.json.encode(answer), user_id)

    def claim(
        self,
        key: str,
        caller: Caller,
        asked: bytes,
        answer: bytes,
        user_id: str | None = None,
    ) -> IdempotencyClaim:
        """Return the claim of a request by its fingerprint, with the response to store.

        The servers of an app share their keys. Users and administrators have keys of their own:
        the stored response may hold a secret, such as that of a device. `user_id` is the user whom
        the response is about, if it is one: it is erased with them.
        """
        if not 0 < len(key) <= KEY_LENGTH:
            reason = f"must have 1 to {KEY_LENGTH} characters"
            raise InvalidFields(FieldFault("Idempotency-Key", reason))
        now, app_id = self.clock.now(), caller.app_id or ""
        key = _own_prefix(caller) + key
        if isinstance(caller, UserCaller):
            user_id = caller.user_id
        return IdempotencyClaim(
            app_id=app_id,
            key=key,
            fingerprint=asked,
            # Responses can hold secrets, so they are sealed like every secret that is read again.
            answer=self.vault.seal(answer, answer_context(app_id, key)),
            created_at=now,
            expires_at=now + KEPT_MS,
            user_id=user_id,
        )

    def answer_again(
        self,
        replay: StoredResponse,
        once: IdempotencyClaim | None,
        body_type: type[T],
        status: int,
    ) -> Response[T]:
        """Return the response to the first request."""
        from litestar import Response  # noqa: PLC0415 - only handlers of the framework come here

        first = msgspec.json.decode(self.open(replay, once), type=body_type)
        return Response(first, status_code=status, headers={"idempotent-replayed": "true"})

    async def create(
        self, request: ApiRequest, key: str | None, answer: T, write: Write
    ) -> Response[T]:
        """Create what `answer` shows, and return the response: for a repeat, the first one."""
        from litestar import Response  # noqa: PLC0415 - only handlers of the framework come here

        once = await self.once(request, key, answer)
        if (replay := await write(once)) is not None:
            return self.answer_again(replay, once, type(answer), 201)
        return Response(answer, status_code=201)

    def open(self, replay: StoredResponse, once: IdempotencyClaim | None) -> bytes:
        """Return the body of the first response."""
        context = answer_context(once.app_id, once.key) if once else ""
        return self.vault.open(replay.answer, context)


def _own_prefix(caller: Caller) -> str:
    """Return what keeps the keys of callers of an app apart: no key has a line break itself."""
    if isinstance(caller, UserCaller):
        return f"{caller.user_id}\n"
    administrator_id = caller.administrator_id
    # No user id is empty.
    return f"\n{administrator_id}\n" if administrator_id else ""


def fingerprint(method: str, path: str, body: bytes) -> bytes:
    """Return a hash for comparing requests with the same key."""
    return hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).digest()
