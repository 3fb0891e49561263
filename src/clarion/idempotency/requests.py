"""`Idempotency-Key`: the first answer is kept for 24 hours and given again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from litestar import Response

from clarion.errors import FieldFault, InvalidFields
from clarion.idempotency.model import IdempotencyClaim

if TYPE_CHECKING:
    from litestar import Request

    from clarion.access.port import Vault
    from clarion.clock import Clock
    from clarion.idempotency.model import StoredResponse

KEY_LENGTH = 255
KEPT_MS = 24 * 3600 * 1000
T = TypeVar("T", bound=msgspec.Struct)


class Idempotency:
    """Prepares what makes a request happen once, and gives the first answer again."""

    def __init__(self, vault: Vault, clock: Clock) -> None:
        self._vault = vault
        self._clock = clock

    async def once(
        self, request: Request[Any, Any, Any], key: str | None, app_id: str, answer: msgspec.Struct
    ) -> IdempotencyClaim | None:
        """Return what goes into the unit with the work; None if the caller gave no key."""
        if key is None:
            return None
        asked = fingerprint(request.method, request.url.path, await request.body())
        return self.claim(key, app_id, asked, msgspec.json.encode(answer))

    def claim(self, key: str, app_id: str, asked: bytes, answer: bytes) -> IdempotencyClaim:
        """Return what makes a request happen once; `asked` is its fingerprint."""
        if not 0 < len(key) <= KEY_LENGTH:
            reason = f"must have 1 to {KEY_LENGTH} characters"
            raise InvalidFields(FieldFault("Idempotency-Key", reason))
        now = self._clock.now()
        return IdempotencyClaim(
            app_id=app_id,
            key=key,
            fingerprint=asked,
            # Answers hold secrets, so they are sealed like every secret that is read again.
            answer=self._vault.seal(answer, _context(app_id, key)),
            now=now,
            expires_at=now + KEPT_MS,
        )

    def answer_again(
        self, replay: StoredResponse, once: IdempotencyClaim | None, kind: type[T], status: int
    ) -> Response[T]:
        """Return the answer that the first request was given."""
        first = msgspec.json.decode(self.open(replay, once), type=kind)
        return Response(first, status_code=status, headers={"idempotent-replayed": "true"})

    def open(self, replay: StoredResponse, once: IdempotencyClaim | None) -> bytes:
        """Return the first answer's body."""
        context = _context(once.app_id, once.key) if once else ""
        return self._vault.open(replay.answer, context)


def fingerprint(method: str, path: str, body: bytes) -> bytes:
    """Return what tells one request from another under the same key."""
    return hashlib.sha256(b"\0".join((method.encode(), path.encode(), body))).digest()


def _context(app_id: str, key: str) -> str:
    return f"apps/{app_id}/idempotency/{key}"
