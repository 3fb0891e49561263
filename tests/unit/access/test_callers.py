"""Callers by API key or user token, and the cache of keys."""

import asyncio

import jwt
import pytest

from clarion.access.callers import CACHED_KEYS, CACHED_MS, Callers
from clarion.access.keys import ApiSecret, IssuedKey, new_api_secret
from clarion.access.known_apps import KnownApps
from clarion.access.model import ALL_SCOPES, AppCaller, Scope, UserCaller, require_app, require_user
from clarion.access.provisioning import NewApp, create_app
from clarion.access.sql import Apps, Keys, Tickets
from clarion.access.tickets import issue_ticket
from clarion.access.user_tokens import UserTokens
from clarion.access.vault import Vault
from clarion.errors import Forbidden, Unauthenticated
from tests.factories import NOW, FixedClock, issue
from tests.recorded_bus import RecordedHub
from tests.replacing import replace
from tests.unit.conftest import MemoryEngine


@pytest.fixture
def callers(keys: Keys, known_apps: KnownApps, tickets: Tickets, clock: FixedClock) -> Callers:
    async def is_active(_app_id: str, user_id: str) -> bool:
        return user_id != "bo"

    return Callers(keys, UserTokens(known_apps), clock, tickets=tickets, is_active=is_active)


@pytest.fixture
async def issued(keys: Keys) -> IssuedKey:
    issued = issue()
    await keys.create(issued.key)
    return issued


@pytest.fixture
async def new_app(apps: Apps, vault: Vault, clock: FixedClock) -> NewApp:
    return await create_app(
        name="App", bundle_id="com.example.app", apps=apps, vault=vault, clock=clock
    )


def bearer(secret: ApiSecret) -> str:
    return f"Bearer {secret.text}"


async def refusal(callers: Callers, authorization: str | None) -> str:
    with pytest.raises(Unauthenticated) as raised:
        await callers.identify(authorization)
    return raised.value.detail


async def test_a_key_identifies_its_app(callers: Callers, issued: IssuedKey) -> None:
    assert await callers.identify(bearer(issued.secret)) == AppCaller(
        app_id="app-1", key_id=issued.key.id, scopes=ALL_SCOPES
    )


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer"])
async def test_the_scheme_is_read_in_any_case(
    callers: Callers, issued: IssuedKey, scheme: str
) -> None:
    caller = await callers.identify(f"{scheme} {issued.secret.text}")
    assert caller.app_id == "app-1"


async def test_the_token_of_an_inactive_user_is_refused(
    callers: Callers, new_app: NewApp, clock: FixedClock
) -> None:
    claims = {"sub": "bo", "aud": new_app.app.id, "exp": clock.now() // 1000 + 60}
    token = jwt.encode(claims, new_app.user_secret, "HS256")
    with pytest.raises(Unauthenticated, match="inactive"):
        await callers.identify(f"Bearer {token}")


async def test_a_user_token_identifies_its_user(
    callers: Callers, new_app: NewApp, clock: FixedClock
) -> None:
    claims = {"sub": "ana", "aud": new_app.app.id, "exp": clock.now() // 1000 + 60}
    token = jwt.encode(claims, new_app.user_secret, algorithm="HS256")
    assert await callers.identify(f"Bearer {token}") == UserCaller(
        app_id=new_app.app.id, user_id="ana"
    )


@pytest.mark.parametrize("authorization", [None, ""])
async def test_without_a_credential_the_error_says_what_to_send(
    callers: Callers, authorization: str | None
) -> None:
    assert "Authorization: Bearer" in await refusal(callers, authorization)


@pytest.mark.parametrize("scheme", ["Basic", "Bearer", "", "Token", "Bearer:"])
async def test_another_scheme_is_refused(callers: Callers, issued: IssuedKey, scheme: str) -> None:
    credential = "" if scheme == "Bearer" else issued.secret.text
    assert "must be `Bearer`" in await refusal(callers, f"{scheme} {credential}")


async def test_an_unknown_key_is_refused(callers: Callers) -> None:
    assert await refusal(callers, bearer(new_api_secret())) == "This API key is not valid."


async def test_a_key_with_a_wrong_secret_is_refused_with_the_same_text(
    callers: Callers, issued: IssuedKey
) -> None:
    wrong = replace(issued.secret, secret="x" * 43)
    assert await refusal(callers, bearer(wrong)) == "This API key is not valid."


@pytest.mark.parametrize("text", ["ck_", "ck_short", "ck_" + "x" * 16 + "_" + "x" * 44])
async def test_what_only_begins_like_a_key_is_refused(callers: Callers, text: str) -> None:
    assert await refusal(callers, f"Bearer {text}") == "This API key is not valid."


async def test_what_is_neither_key_nor_token_is_refused(callers: Callers) -> None:
    assert "neither an API key" in await refusal(callers, "Bearer nonsense")


async def test_a_revoked_key_is_refused(
    callers: Callers, keys: Keys, issued: IssuedKey, clock: FixedClock
) -> None:
    await keys.revoke("app-1", issued.key.id, clock.now())
    assert "revoked or has expired" in await refusal(callers, bearer(issued.secret))


async def test_a_key_is_refused_from_the_moment_it_expires(
    callers: Callers, keys: Keys, clock: FixedClock
) -> None:
    issued = issue(expires_at=clock.now() + 10)
    await keys.create(issued.key)
    clock.advance(9)
    await callers.identify(bearer(issued.secret))
    clock.advance(1)
    assert "revoked or has expired" in await refusal(callers, bearer(issued.secret))


async def test_a_key_is_cached_for_two_seconds(
    callers: Callers, engine: MemoryEngine, issued: IssuedKey, clock: FixedClock
) -> None:
    await callers.identify(bearer(issued.secret))
    reads = engine.reads
    clock.advance(CACHED_MS - 1)
    await callers.identify(bearer(issued.secret))
    assert engine.reads == reads
    clock.advance(1)
    await callers.identify(bearer(issued.secret))
    assert engine.reads == reads + 1


async def test_a_key_revoked_elsewhere_is_refused_within_two_seconds(
    callers: Callers, keys: Keys, issued: IssuedKey, clock: FixedClock
) -> None:
    await callers.identify(bearer(issued.secret))
    await keys.revoke("app-1", issued.key.id, clock.now())
    clock.advance(CACHED_MS)
    assert "revoked" in await refusal(callers, bearer(issued.secret))


async def test_a_forgotten_key_is_looked_up_at_once(
    callers: Callers, keys: Keys, issued: IssuedKey, clock: FixedClock
) -> None:
    await callers.identify(bearer(issued.secret))
    await keys.revoke("app-1", issued.key.id, clock.now())
    callers.forget(issued.key.id)
    callers.forget("never seen")
    assert "revoked" in await refusal(callers, bearer(issued.secret))


async def test_a_clock_that_is_set_back_does_not_prolong_the_cache(
    callers: Callers, keys: Keys, issued: IssuedKey, clock: FixedClock
) -> None:
    await callers.identify(bearer(issued.secret))
    await keys.revoke("app-1", issued.key.id, clock.now())
    clock.advance(-3_600_000)
    assert "revoked" in await refusal(callers, bearer(issued.secret))


async def test_keys_that_were_used_are_known_until_they_are_recorded(
    callers: Callers, issued: IssuedKey
) -> None:
    await refusal(callers, bearer(new_api_secret()))
    await refusal(callers, bearer(replace(issued.secret, secret="x" * 43)))
    assert callers.used == set()
    await callers.identify(bearer(issued.secret))
    assert callers.used == {issued.key.id}
    callers.used.clear()
    await callers.identify(bearer(issued.secret))
    assert callers.used == {issued.key.id}, "from the cache, too"


async def test_the_keys_of_a_deleted_app_are_refused_at_once_when_it_is_forgotten(
    callers: Callers, apps: Apps, new_app: NewApp, clock: FixedClock
) -> None:
    authorization = f"Bearer {new_app.api_key}"
    await callers.identify(authorization)
    await apps.delete(new_app.app.id, clock.now())
    callers.forget_app(new_app.app.id)
    assert "revoked" in await refusal(callers, authorization)


async def test_a_ticket_stands_for_the_user_once(
    callers: Callers, tickets: Tickets, clock: FixedClock
) -> None:
    ana = UserCaller(app_id="app", user_id="ana", expires_at=clock.now() + 10_000)
    ticket, text = issue_ticket(ana, clock.now())
    await tickets.add(ticket)
    redeemed = await callers.redeem(text)
    assert (redeemed, redeemed.expires_at) == (ana, ana.expires_at)
    with pytest.raises(Unauthenticated, match="unknown, used, or has expired"):
        await callers.redeem(text)


async def test_a_ticket_does_not_outlive_its_token_nor_stand_for_an_inactive_user(
    callers: Callers, tickets: Tickets, clock: FixedClock
) -> None:
    for user_id, expires_at in (("ana", clock.now()), ("bo", clock.now() + 10_000)):
        caller = UserCaller(app_id="app", user_id=user_id, expires_at=expires_at)
        ticket, text = issue_ticket(caller, clock.now())
        await tickets.add(ticket)
        with pytest.raises(Unauthenticated):
            await callers.redeem(text)


@pytest.mark.parametrize("text", ["", "tk_", "\ud800", "\0", "x" * 100_000])
async def test_what_is_no_ticket_is_refused(callers: Callers, text: str) -> None:
    with pytest.raises(Unauthenticated):
        await callers.redeem(text)


async def test_an_unknown_key_is_not_looked_up_each_time(
    callers: Callers, engine: MemoryEngine
) -> None:
    unknown = bearer(new_api_secret())
    await refusal(callers, unknown)
    reads = engine.reads
    await refusal(callers, unknown)
    assert engine.reads == reads


async def test_the_cache_does_not_grow_without_end(callers: Callers) -> None:
    for number in range(CACHED_KEYS):
        callers._cache.put(str(number), None, 0, 0)
    await refusal(callers, bearer(new_api_secret()))
    assert len(callers._cache) <= CACHED_KEYS


def test_an_app_needs_the_scope() -> None:
    caller = AppCaller(app_id="a", key_id="k", scopes=frozenset({Scope.KEYS_READ}))
    assert require_app(caller, Scope.KEYS_READ) is caller
    with pytest.raises(Forbidden, match="does not have the scope `keys:write`"):
        require_app(caller, Scope.KEYS_WRITE)


def test_a_user_is_no_app() -> None:
    with pytest.raises(Forbidden, match="use an API key"):
        require_app(UserCaller(app_id="a", user_id="u"), Scope.KEYS_READ)


def test_an_app_is_no_user() -> None:
    user = UserCaller(app_id="a", user_id="u")
    assert require_user(user) is user
    for caller in (AppCaller(app_id="a", key_id="k", scopes=frozenset()), None):
        with pytest.raises(Forbidden, match="use a user token"):
            require_user(caller)


async def test_a_key_revoked_on_one_node_is_refused_by_the_others_when_they_are_told(
    keys: Keys, known_apps: KnownApps, tickets: Tickets, clock: FixedClock, issued: IssuedKey
) -> None:
    hub = RecordedHub()
    here, there = (
        Callers(keys, UserTokens(known_apps), clock, tickets=tickets, is_active=anyone)
        for _ in range(2)
    )
    for each in (here, there):
        each.forget.join(hub.join())
        await each.identify(bearer(issued.secret))
    await keys.revoke(issued.key.app_id, issued.key.id, NOW)
    here.forget(issued.key.id)
    await asyncio.sleep(0)
    assert "revoked" in await refusal(there, bearer(issued.secret))


async def test_no_key_is_cached_over_a_gap(callers: Callers, keys: Keys, issued: IssuedKey) -> None:
    bus = RecordedHub().join()
    callers.forget.join(bus)
    await callers.identify(bearer(issued.secret))
    await keys.revoke(issued.key.app_id, issued.key.id, NOW)
    await callers.identify(bearer(issued.secret))
    bus.miss()
    assert "revoked" in await refusal(callers, bearer(issued.secret))


async def test_a_key_that_is_revoked_while_it_is_read_is_not_cached(
    keys: Keys, known_apps: KnownApps, tickets: Tickets, clock: FixedClock, issued: IssuedKey
) -> None:
    class RevokingKeys:
        async def find(self, key_id: str) -> object:
            found = await keys.find(key_id)
            await keys.revoke(issued.key.app_id, key_id, NOW)
            reading.forget(key_id)
            return found

    reading = Callers(
        RevokingKeys(),  # type: ignore[arg-type]
        UserTokens(known_apps),
        clock,
        tickets=tickets,
        is_active=anyone,
    )
    await reading.identify(bearer(issued.secret))
    assert "revoked" in await refusal(reading, bearer(issued.secret))


async def test_who_sent_a_key_that_was_revoked_while_it_was_read_is_not_remembered(
    keys: Keys, known_apps: KnownApps, tickets: Tickets, clock: FixedClock, issued: IssuedKey
) -> None:
    is_read, may_return = asyncio.Event(), asyncio.Event()

    class SlowKeys:
        async def find(self, key_id: str) -> object:
            found = await keys.find(key_id)
            if not is_read.is_set():
                is_read.set()
                await may_return.wait()
            return found

    reading = Callers(
        SlowKeys(),  # type: ignore[arg-type]
        UserTokens(known_apps),
        clock,
        tickets=tickets,
        is_active=anyone,
    )
    slow = asyncio.create_task(reading.identify(bearer(issued.secret)))
    await is_read.wait()
    await keys.revoke(issued.key.app_id, issued.key.id, NOW)
    reading.forget(issued.key.id)
    # The key is cached again, as it is now, before the slow read ends.
    assert "revoked" in await refusal(reading, bearer(issued.secret))
    may_return.set()
    await slow
    assert "revoked" in await refusal(reading, bearer(issued.secret))


async def anyone(_app_id: str, _user_id: str) -> bool:
    return True
