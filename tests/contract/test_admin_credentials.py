"""The ports of administrators: sessions, trusted devices, second factors, keys, failed sign-ins."""

import asyncio
from typing import Any

import pytest

from clarion.access.administrators.attempts import counted
from clarion.access.administrators.model import (
    LIVE_ADMIN_KEYS_LIMIT,
    SESSIONS_LIMIT,
    AdminKey,
    RecoveryCode,
    TotpSecret,
    TotpState,
    TrustedDevice,
)
from clarion.access.administrators.sql.attempts import (
    FIRST_LOCK_MS,
    FORGOTTEN_MS,
    LONGEST_LOCK_MS,
    Counter,
)
from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.model import Role
from clarion.access.tables import ADMIN_SESSIONS, SIGN_IN_ATTEMPTS, TRUSTED_DEVICES
from clarion.errors import (
    Conflict,
    Overloaded,
    SignInFailed,
    StoreUnavailable,
    TooManyRequests,
)
from clarion.idempotency.model import StoredResponse
from clarion.store.engine import Engine
from clarion.store.lifecycle.retention import prune
from tests.factories import DAY, NOW, make_once, make_session
from tests.replacing import replace

PAIR, PLACE = Counter("account:ana:192.0.2.7", 5), Counter("address:192.0.2.7", 30)


def make_device(administrator_id: str, **changes: Any) -> TrustedDevice:
    values: dict[str, Any] = {
        "token_hash": b"device",
        "administrator_id": administrator_id,
        "created_at": NOW,
        "expires_at": NOW + DAY,
    }
    return TrustedDevice(**values | changes)


def make_totp(administrator_id: str, **changes: Any) -> TotpSecret:
    values: dict[str, Any] = {
        "administrator_id": administrator_id,
        "state": TotpState.NEW,
        "secret": b"sealed",
        "last_step": 0,
        "created_at": NOW,
    }
    return TotpSecret(**values | changes)


def make_admin_key(administrator_id: str, **changes: Any) -> AdminKey:
    values: dict[str, Any] = {
        "id": "key-1",
        "administrator_id": administrator_id,
        "label": "läbel",
        "role": Role.EDITOR,
        "secret_hash": b"\x00hash\xff",
        "created_at": NOW,
    }
    return AdminKey(**values | changes)


def make_codes(administrator_id: str, *codes: bytes) -> list[RecoveryCode]:
    return [
        RecoveryCode(administrator_id=administrator_id, code_hash=code, salt=b"salt")
        for code in codes
    ]


@pytest.mark.parametrize("mfa_at", [None, NOW])
async def test_a_session_is_found_by_its_secret(admins: AdminStores, mfa_at: int | None) -> None:
    session = make_session("ana", mfa_at=mfa_at)
    await admins.sessions.start(session)
    assert await admins.sessions.find(session.secret_hash) == session
    assert await admins.sessions.find(b"another") is None


async def test_a_session_replaces_another(admins: AdminStores) -> None:
    old, new = make_session("ana"), make_session("ana")
    await admins.sessions.start(old)
    await admins.sessions.start(new, instead_of=old.secret_hash)
    assert await admins.sessions.list("ana") == (new,)


async def test_a_session_of_another_administrator_is_replaced_too(admins: AdminStores) -> None:
    """A browser has one session: whoever signs in on it ends that of the one before."""
    bobs = make_session("bob")
    await admins.sessions.start(bobs)
    await admins.sessions.start(make_session("ana"), instead_of=bobs.secret_hash)
    assert await admins.sessions.list("bob") == ()


async def test_the_oldest_sessions_end(admins: AdminStores) -> None:
    sessions = [make_session("ana") for _ in range(SESSIONS_LIMIT + 2)]
    for session in sessions:
        await admins.sessions.start(session)
    assert await admins.sessions.list("ana") == tuple(reversed(sessions[2:]))


async def test_sign_ins_without_a_second_factor_end_no_session_that_has_one(
    admins: AdminStores,
) -> None:
    mine = make_session("ana", mfa_at=NOW)
    await admins.sessions.start(mine)
    for _ in range(SESSIONS_LIMIT + 1):
        await admins.sessions.start(make_session("ana"))
    assert mine in await admins.sessions.list("ana")
    assert len(await admins.sessions.list("ana")) == SESSIONS_LIMIT + 1


async def test_the_use_and_the_password_of_a_session_are_recorded(admins: AdminStores) -> None:
    session = make_session("ana")
    await admins.sessions.start(session)
    await admins.sessions.touch(session.id, NOW + 1)
    await admins.sessions.confirm(session.id, NOW + 2)
    stored = await admins.sessions.find(session.secret_hash)
    assert stored == replace(session, last_seen_at=NOW + 1, confirmed_at=NOW + 2)


async def test_a_session_ends_for_its_own_administrator_only(admins: AdminStores) -> None:
    session = make_session("ana")
    await admins.sessions.start(session)
    assert not await admins.sessions.end("bob", session.id)
    assert await admins.sessions.end("ana", session.id)
    assert not await admins.sessions.end("ana", session.id)
    assert await admins.sessions.find(session.secret_hash) is None


async def test_all_sessions_and_devices_end(admins: AdminStores, other_node: Engine) -> None:
    sessions = [make_session("ana") for _ in range(3)]
    for session in sessions:
        await admins.sessions.start(session)
    await admins.sessions.trust(make_device("ana"))
    assert await admins.sessions.end_all("ana") == 3
    elsewhere = make_admin_stores(other_node).sessions
    assert await elsewhere.list("ana") == ()
    assert await elsewhere.find_device(b"device", NOW) is None


async def test_what_has_expired_is_pruned(engine: Engine, admins: AdminStores) -> None:
    old, new = make_session("ana", expires_at=NOW), make_session("ana", expires_at=NOW + 1)
    for session in (old, new):
        await admins.sessions.start(session)
    await admins.sessions.trust(make_device("ana", token_hash=b"old", expires_at=NOW))
    await admins.sessions.trust(make_device("ana", token_hash=b"new", expires_at=NOW + 1))
    assert await prune(engine, ADMIN_SESSIONS, NOW, 10) == 1
    assert await prune(engine, TRUSTED_DEVICES, NOW, 10) == 1
    assert await admins.sessions.list("ana") == (new,)
    assert await admins.sessions.find_device(b"old", NOW - 1) is None
    assert await admins.sessions.find_device(b"new", NOW) is not None


async def test_a_trusted_device_expires(admins: AdminStores) -> None:
    device = make_device("ana")
    await admins.sessions.trust(device)
    assert await admins.sessions.find_device(device.token_hash, NOW + DAY - 1) == device
    assert await admins.sessions.find_device(device.token_hash, NOW + DAY) is None


async def test_an_administrator_trusts_twenty_devices(admins: AdminStores) -> None:
    devices = [
        make_device("ana", token_hash=b"%d" % number, created_at=NOW + number)
        for number in range(21)
    ]
    for device in devices:
        await admins.sessions.trust(device)
    found = [await admins.sessions.find_device(each.token_hash, NOW) for each in devices]
    assert found == [None, *devices[1:]]


async def test_a_secret_is_new_until_it_is_confirmed(admins: AdminStores) -> None:
    await admins.factors.put_new_totp(make_totp("ana", secret=b"first"))
    await admins.factors.put_new_totp(make_totp("ana", secret=b"second"))
    new = await admins.factors.find_new_totp("ana")
    assert new == make_totp("ana", secret=b"second")
    assert await admins.factors.find_totp("ana") is None
    assert new is not None
    assert await admins.factors.confirm_totp(new, 7, make_codes("ana", b"1", b"2"))
    current = replace(new, state=TotpState.CURRENT, last_step=7)
    assert await admins.factors.find_totp("ana") == current
    assert await admins.factors.find_new_totp("ana") is None
    assert {each.code_hash for each in await admins.factors.list_codes("ana")} == {b"1", b"2"}


async def test_a_new_secret_replaces_the_current_one(admins: AdminStores) -> None:
    for number in range(2):
        secret = make_totp("ana", created_at=NOW + number, secret=b"%d" % number)
        await admins.factors.put_new_totp(secret)
        await admins.sessions.trust(make_device("ana", token_hash=b"%d" % number))
        assert await admins.factors.confirm_totp(secret, 7, make_codes("ana", b"%d" % number))
    current = await admins.factors.find_totp("ana")
    assert current is not None
    assert current.secret == b"1"
    assert [each.code_hash for each in await admins.factors.list_codes("ana")] == [b"1"]
    assert await admins.sessions.find_device(b"1", NOW) is None


async def test_a_secret_that_was_replaced_is_not_confirmed(admins: AdminStores) -> None:
    old = make_totp("ana")
    await admins.factors.put_new_totp(old)
    await admins.factors.put_new_totp(make_totp("ana", created_at=NOW + 1))
    assert not await admins.factors.confirm_totp(old, 7, make_codes("ana", b"1"))
    assert await admins.factors.list_codes("ana") == ()


async def test_a_step_is_used_once_on_all_nodes(admins: AdminStores, other_node: Engine) -> None:
    secret, others = make_totp("ana"), make_admin_stores(other_node)
    await admins.factors.put_new_totp(secret)
    await admins.factors.confirm_totp(secret, 7, ())
    done = await asyncio.gather(
        *(each.factors.use_step("ana", 8) for each in (admins, others) for _ in range(5))
    )
    assert sum(done) == 1
    assert not await others.factors.use_step("ana", 7)
    assert await others.factors.use_step("ana", 9)
    assert not await others.factors.use_step("bob", 9)


async def test_a_recovery_code_is_used_once_on_all_nodes(
    admins: AdminStores, other_node: Engine
) -> None:
    one, two = make_codes("ana", b"1", b"2")
    others = make_admin_stores(other_node)
    await admins.factors.replace_codes("ana", [one, two])
    done = await asyncio.gather(
        *(each.factors.use_code(one) for each in (admins, others) for _ in range(5))
    )
    assert sum(done) == 1
    assert await admins.factors.list_codes("ana") == (two,)
    assert not await admins.factors.use_code(replace(two, administrator_id="bob"))


async def test_the_second_factor_is_removed_whole(admins: AdminStores) -> None:
    secret = make_totp("ana")
    await admins.factors.put_new_totp(secret)
    await admins.factors.confirm_totp(secret, 7, make_codes("ana", b"1"))
    await admins.factors.put_new_totp(secret)
    await admins.sessions.trust(make_device("ana"))
    await admins.factors.delete_totp("ana")
    assert await admins.factors.find_totp("ana") is None
    assert await admins.factors.find_new_totp("ana") is None
    assert await admins.factors.list_codes("ana") == ()
    assert await admins.sessions.find_device(b"device", NOW) is None


async def test_a_key_comes_back_as_made(admins: AdminStores) -> None:
    key = make_admin_key("ana", expires_at=NOW + 1)
    assert await admins.keys.create(key) is None
    assert await admins.keys.find(key.id) == key
    assert (await admins.keys.list("ana", after=None, limit=5)).items == (key,)
    assert (await admins.keys.list("bob", after=None, limit=5)).items == ()
    with pytest.raises(Conflict):
        await admins.keys.create(key)


async def test_a_repeated_request_creates_no_key(admins: AdminStores) -> None:
    once = make_once("")
    assert await admins.keys.create(make_admin_key("ana"), once) is None
    again = await admins.keys.create(make_admin_key("ana", id="key-2"), once)
    assert again == StoredResponse(once.answer)


async def test_an_administrator_has_a_limited_number_of_live_keys(admins: AdminStores) -> None:
    names = [f"key-{number}" for number in range(LIVE_ADMIN_KEYS_LIMIT)]
    await asyncio.gather(*(admins.keys.create(make_admin_key("ana", id=name)) for name in names))
    with pytest.raises(Conflict, match="100 live admin API keys"):
        await admins.keys.create(make_admin_key("ana", id="one-more"))
    assert await admins.keys.create(make_admin_key("bob", id="of-bob")) is None
    await admins.keys.revoke("ana", "key-1", NOW)
    assert await admins.keys.create(make_admin_key("ana", id="one-more")) is None


async def test_a_key_is_revoked_by_its_own_administrator_only(admins: AdminStores) -> None:
    await admins.keys.create(make_admin_key("ana"))
    assert await admins.keys.revoke("bob", "key-1", NOW) is None
    revoked = await admins.keys.revoke("ana", "key-1", NOW)
    assert revoked == make_admin_key("ana", revoked_at=NOW)
    assert await admins.keys.revoke("ana", "key-1", NOW + 1) == revoked


async def test_the_use_of_a_key_is_recorded(admins: AdminStores) -> None:
    await admins.keys.create(make_admin_key("ana"))
    await admins.keys.touch("key-1", NOW + 1)
    assert await admins.keys.find("key-1") == make_admin_key("ana", last_used_at=NOW + 1)


async def fail(admins: AdminStores, times: int, now: int = NOW) -> list[int | None]:
    return [await admins.attempts.take((PAIR, PLACE), now) for _ in range(times)]


async def test_too_many_failures_lock_for_a_while(admins: AdminStores) -> None:
    assert await fail(admins, 7) == [None] * 5 + [NOW + FIRST_LOCK_MS] * 2
    assert await fail(admins, 1, NOW + FIRST_LOCK_MS - 1) == [NOW + FIRST_LOCK_MS]
    assert await fail(admins, 1, NOW + FIRST_LOCK_MS) == [None]


async def test_each_further_failure_doubles_the_lock_up_to_the_longest(admins: AdminStores) -> None:
    await fail(admins, 5)
    now, locks = NOW, []
    for _ in range(8):
        (until,) = await fail(admins, 1, now)
        assert until is not None
        locks.append(until - now)
        now = until
        assert await fail(admins, 1, now) == [None]
    assert locks == [30_000, 60_000, 120_000, 240_000, 480_000, *[LONGEST_LOCK_MS] * 3]


async def test_other_counters_are_not_locked(admins: AdminStores) -> None:
    await fail(admins, 5)
    elsewhere = (Counter("account:ana:192.0.2.8", 5), Counter("address:192.0.2.8", 30))
    assert await admins.attempts.take(elsewhere, NOW) is None


async def test_attempts_at_the_same_time_do_not_pass_together(
    admins: AdminStores, other_node: Engine
) -> None:
    nodes = (admins, make_admin_stores(other_node))
    done = await asyncio.gather(
        *(node.attempts.take((PAIR, PLACE), NOW) for node in nodes for _ in range(20))
    )
    assert done.count(None) == 5


async def test_a_refused_attempt_is_counted_by_none(admins: AdminStores) -> None:
    """An account that is locked here must not lock the address by being asked for again."""
    await fail(admins, 40)
    other = (Counter("account:bob:192.0.2.7", 5), PLACE)
    assert await admins.attempts.take(other, NOW) is None


async def test_a_success_resets_the_first_and_takes_back_one_of_the_others(
    admins: AdminStores,
) -> None:
    strict = (PAIR, Counter(PLACE.key, 6))
    for _ in range(5):
        assert await admins.attempts.take(strict, NOW) is None
    await admins.attempts.succeed(strict)
    # Of the place four are left: two more reach its limit.
    others = [(Counter(f"account:{name}", 5), strict[1]) for name in ("b", "c", "d")]
    taken = [await admins.attempts.take(each, NOW) for each in others]
    assert [each is None for each in taken] == [True, True, False]


async def test_an_attempt_that_was_taken_back_does_not_count(admins: AdminStores) -> None:
    await fail(admins, 5)
    await admins.attempts.take_back((PAIR, PLACE))
    assert await fail(admins, 2) == [None, NOW + FIRST_LOCK_MS]


async def test_what_the_server_could_not_check_is_no_failure(admins: AdminStores) -> None:
    """Overload locked the right password out: each 503 counted as a failed attempt."""
    for error in [Overloaded()] * 7 + [StoreUnavailable("gone")] * 7:
        with pytest.raises(type(error)):
            async with counted(admins.attempts, (PAIR, PLACE), NOW):
                raise error
    for _ in range(5):
        with pytest.raises(SignInFailed):
            async with counted(admins.attempts, (PAIR, PLACE), NOW):
                raise SignInFailed
    with pytest.raises(TooManyRequests):
        async with counted(admins.attempts, (PAIR, PLACE), NOW):
            raise AssertionError("not locked")


async def test_failures_are_forgotten(admins: AdminStores) -> None:
    await fail(admins, 4)
    later = NOW + FORGOTTEN_MS
    assert await fail(admins, 5, later) == [None] * 5
    assert await fail(admins, 1, later) == [later + FIRST_LOCK_MS]


async def test_a_lock_of_a_wrong_clock_holds_nobody(admins: AdminStores) -> None:
    await fail(admins, 5, NOW + DAY)
    assert await fail(admins, 1) == [None]


async def test_counters_are_forgotten_by_prefix(admins: AdminStores) -> None:
    await fail(admins, 5)
    await admins.attempts.forget("account:an")
    assert await fail(admins, 5) == [None] * 5


async def test_old_counters_are_pruned(engine: Engine, admins: AdminStores) -> None:
    await fail(admins, 4)
    assert await prune(engine, SIGN_IN_ATTEMPTS, NOW - 1, 10) == 0
    assert await prune(engine, SIGN_IN_ATTEMPTS, NOW, 10) == 2
    assert await fail(admins, 5) == [None] * 5
