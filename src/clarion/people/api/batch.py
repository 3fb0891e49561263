"""`POST /v1/users/batch`: creates or updates up to 1,000 users in few commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clarion.access.model import AppCaller, Scope, require_app
from clarion.clock import Clock
from clarion.errors import FieldFault, InvalidFields, RequestError, Unauthenticated
from clarion.fields import UserId, check_user_id
from clarion.http.asgi import FastRoute, Operation, Request, Response, respond_json
from clarion.http.batches import BATCH_LIMIT, Refusal, claim_key, explain_refusal, read_items
from clarion.http.bodies import collect
from clarion.http.decoding import decode
from clarion.http.dependencies import OnUserChanged
from clarion.http.idempotency import Idempotency
from clarion.http.shapes import IDEMPOTENCY_KEY
from clarion.idempotency.port import IdempotencyKeys
from clarion.pacing import Slices
from clarion.people.api.shapes import UserBody, make_user, read_fields, update_user
from clarion.people.erasure.eraser import Eraser
from clarion.people.model import StoredUser, User, UserStatus
from clarion.people.sql import Edit, Users

PATH = "/v1/users/batch"
_REPLAYED = (b"idempotent-replayed", b"true")
_CHANGED_AT_ONCE = 100
# No rule looks at these.
_NOT_DECISIVE = ("metadata", "consent", "profile", "last_login_at", "last_seen_at", "updated_at")


class BatchUser(UserBody, kw_only=True):
    """A user to create, or the fields of a user to update. Null resets a field to its default."""

    id: UserId


class UserBatch(msgspec.Struct, forbid_unknown_fields=True):
    """Up to 1,000 users. A list of users without this object is accepted too."""

    users: Annotated[
        list[BatchUser], Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_LIMIT})
    ]
    """The users, 1 to 1,000, each at most once."""


class UserResult(Refusal, omit_defaults=True, kw_only=True):
    """The result for one user of a batch; with the status `refused`, why."""

    status: Literal["created", "updated", "refused"]
    """What was done; if `refused`, then `code`, `detail` and `errors` say why."""
    id: Annotated[str | None, Meta(description="Left out if the item has no valid id.")] = None


class UserBatchResult(msgspec.Struct):
    """One result for each user, in order."""

    results: list[UserResult]
    """One result for each user, in the order of the request."""


_ITEM = msgspec.json.Decoder(BatchUser)
_encode = msgspec.json.Encoder().encode
_OPERATION = Operation(
    summary="Create or update users in a batch",
    description="Create users that do not exist; of the others update the fields that are given, "
    "as `PATCH` does. A user that is refused does not affect the others. The response is sent when "
    "all are stored. Repeating a batch has no further effect.",
    tag="Users",
    parameters=(IDEMPOTENCY_KEY,),
    body=UserBatch,
    response=UserBatchResult,
    response_description="One result for each user, in order.",
)


@dataclass(frozen=True, slots=True)
class UserBatchEndpoint:
    """Writes many users at once."""

    users: Users
    keys: IdempotencyKeys
    idempotency: Idempotency
    clock: Clock
    eraser: Eraser
    on_user_changed: OnUserChanged

    @property
    def routes(self) -> tuple[FastRoute, ...]:
        return (FastRoute("POST", PATH, self.write_batch, _OPERATION),)

    async def write_batch(self, request: Request) -> Response:
        """`POST /v1/users/batch`."""
        caller = _caller_of(request)
        body = await request.json()
        claim = partial(claim_key, self.idempotency, request, caller, body)
        # Writing the same fields again changes nothing, so it does no harm if a process ends
        # before it has stored the response.
        once = claim(b"")
        if once is not None and (replay := await self.keys.find(once)) is not None:
            return _answer(self.idempotency.open(replay, once), _REPLAYED)
        answer = _encode(UserBatchResult(await self._write(caller.app_id, body)))
        once = claim(answer)
        if once is not None and (replay := await self.keys.store(once)) is not None:
            return _answer(self.idempotency.open(replay, once), _REPLAYED)
        return _answer(answer)

    async def _write(self, app_id: str, body: bytes) -> list[UserResult]:
        read = await self._read(app_id, read_items(body, "users"))
        edits = {each.id: each.edit for each in read if isinstance(each, _Item)}
        refused = await self.eraser.find_unwritable(app_id, edits)
        allowed = {each: edits[each] for each in edits if each not in refused}
        outcomes = {**refused, **await self.users.edit_many(app_id, allowed)}
        await self._apply_changes(outcomes.values())
        return [
            _report(None, each)
            if isinstance(each, RequestError)
            else _report(each.id, outcomes[each.id])
            for each in read
        ]

    async def _read(self, app_id: str, items: list[msgspec.Raw]) -> list[_Item | RequestError]:
        """Return the edit of each item, or what is wrong with it."""
        read: list[_Item | RequestError] = []
        known: set[str] = set()
        now, slices = self.clock.now(), Slices()
        for raw in items:
            await slices.pause()
            try:
                item = _read_item(raw, app_id, now, known)
            except RequestError as error:
                read.append(error)
            else:
                known.add(item.id)
                read.append(item)
        return read

    async def _apply_changes(self, outcomes: Iterable[StoredUser | RequestError]) -> None:
        """Decide again on waiting notifications of users whose change may affect them."""
        changed = (
            self.on_user_changed(each.user.app_id, each.user.id)
            for each in outcomes
            if isinstance(each, StoredUser) and _matters(each)
        )
        while some := list(islice(changed, _CHANGED_AT_ONCE)):
            await asyncio.gather(*some)


class _Item(msgspec.Struct, frozen=True):
    id: str
    edit: Edit


def _caller_of(request: Request) -> AppCaller:
    if request.caller is None:
        raise Unauthenticated
    return require_app(request.caller, Scope.USERS_WRITE)


def _answer(body: bytes, *headers: tuple[bytes, bytes]) -> Response:
    return respond_json(200, body, *headers)


def _read_item(raw: msgspec.Raw, app_id: str, now: int, known: set[str]) -> _Item:
    data = decode(_ITEM, raw)
    given = collect(
        {"id": partial(check_user_id, data.id), "fields": partial(read_fields, data, now)}
    )
    if data.id in known:
        raise InvalidFields(FieldFault("id", "appears more than once in this batch"))
    return _Item(data.id, partial(_edit, app_id, data.id, given["fields"], now))


def _edit(app_id: str, user_id: str, given: dict[str, Any], now: int, user: User | None) -> User:
    if user is None:
        return make_user(app_id, user_id, given, now)
    return update_user(user, given, now)


def _matters(stored: StoredUser) -> bool:
    """Return whether the rules may decide otherwise, or the user's connections must end."""
    before, user = stored.before, stored.user
    if before is None:
        return user.status is not UserStatus.ACTIVE
    kept = {name: getattr(user, name) for name in _NOT_DECISIVE}
    return replace(before, **kept) != user


def _report(user_id: str | None, outcome: StoredUser | RequestError) -> UserResult:
    if isinstance(outcome, RequestError):
        return UserResult(status="refused", id=user_id, **explain_refusal(outcome))
    return UserResult(status="updated" if outcome.before else "created", id=user_id)
