"""The ports of administrators: accounts and set-up links."""

import asyncio

import pytest

from clarion.access.administrators.model import (
    ADMINISTRATORS_LIMIT,
    FIRST,
    Administrator,
    RecoveryCode,
    TotpState,
)
from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.model import Role
from clarion.errors import Conflict
from clarion.idempotency.model import StoredResponse
from clarion.store.engine import Engine
from tests.contract.test_admin_credentials import make_admin_key, make_device, make_totp
from tests.factories import DAY, NOW, make_administrator, make_link, make_once, make_session
from tests.replacing import replace


async def add(admins: AdminStores, username: str, **changes: object) -> Administrator:
    account = make_administrator(username, **changes)
    assert await admins.accounts.create(account, make_link(account.id)) is None
    return account


async def add_all_that_belongs_to(admins: AdminStores, account: Administrator) -> None:
    await admins.sessions.start(make_session(account.id, secret_hash=b"session of " + tag(account)))
    await admins.sessions.trust(make_device(account.id, token_hash=b"device of " + tag(account)))
    await admins.keys.create(make_admin_key(account.id, id=f"key-{account.id[-12:]}"))
    await admins.factors.put_new_totp(make_totp(account.id))
    codes = [RecoveryCode(administrator_id=account.id, code_hash=b"code", salt=b"salt")]
    assert await admins.factors.confirm_totp(make_totp(account.id), 5, codes)
    await admins.sessions.trust(make_device(account.id, token_hash=b"device of " + tag(account)))


def tag(account: Administrator) -> bytes:
    return account.id.encode()


async def count_sign_ins(admins: AdminStores, account: Administrator) -> tuple[int, bool]:
    """Return the sessions, and whether the trusted device is left."""
    device = await admins.sessions.find_device(b"device of " + tag(account), NOW)
    return len(await admins.sessions.list(account.id)), device is not None


@pytest.mark.parametrize("role", [*Role, None])
async def test_an_administrator_comes_back_as_made(admins: AdminStores, role: Role | None) -> None:
    ana = await add(
        admins,
        "ana",
        role=role,
        app_roles={"app": Role.EDITOR},
        networks=("192.0.2.0/24",),
        password_changed_at=NOW,
    )
    assert await admins.accounts.find("ana") == await admins.accounts.get(ana.id) == ana
    assert (await admins.accounts.list(after=None, limit=5)).items == (ana,)


async def test_an_unknown_name_is_none(admins: AdminStores) -> None:
    assert not await admins.accounts.exist()
    await add(admins, "ana")
    assert await admins.accounts.exist()
    assert await admins.accounts.find("") is None
    assert await admins.accounts.find("an") is None


async def test_a_name_is_found_however_it_is_written(admins: AdminStores) -> None:
    """Earlier releases allowed capital letters."""
    ana, old = await add(admins, "ana"), await add(admins, "Bob")
    assert await admins.accounts.find("ANA") == ana
    assert await admins.accounts.find("Bob") == old


async def test_a_taken_username_is_a_conflict_and_changes_nothing(admins: AdminStores) -> None:
    first = await add(admins, "ana")
    with pytest.raises(Conflict, match=r"^An administrator with this username already exists\.$"):
        await add(admins, "ana", role=Role.ADMIN)
    assert await admins.accounts.find("ana") == first


async def test_a_repeated_request_creates_nothing(admins: AdminStores) -> None:
    account, once = make_administrator("ana"), make_once("")
    assert await admins.accounts.create(account, make_link(account.id), once) is None
    other = make_administrator("bob")
    again = await admins.accounts.create(other, make_link(other.id), once)
    assert again == StoredResponse(once.answer)
    assert await admins.accounts.find("bob") is None


async def test_there_are_at_most_a_thousand(admins: AdminStores) -> None:
    accounts = [make_administrator(f"a{number}") for number in range(ADMINISTRATORS_LIMIT)]
    await asyncio.gather(*(admins.accounts.create(each, make_link(each.id)) for each in accounts))
    with pytest.raises(Conflict, match="1,000 administrators already"):
        await add(admins, "one more")


async def test_pages_continue_where_the_last_one_ended(admins: AdminStores) -> None:
    made = [await add(admins, name) for name in ("c", "a", "b")]
    first = await admins.accounts.list(after=None, limit=2)
    second = await admins.accounts.list(after=first.next, limit=2)
    assert (first.items + second.items, second.next) == (tuple(made), None)


async def test_a_change_ends_all_sessions_and_trusted_devices(admins: AdminStores) -> None:
    ana, bob = await add(admins, "ana"), await add(admins, "bob")
    for each in (ana, bob):
        await add_all_that_belongs_to(admins, each)
    changed = await admins.accounts.edit(ana.id, lambda each: replace(each, role=Role.EDITOR))
    assert changed == await admins.accounts.get(ana.id) == replace(ana, role=Role.EDITOR)
    assert await count_sign_ins(admins, ana) == (0, False)
    assert await count_sign_ins(admins, bob) == (1, True)
    key = (await admins.keys.list(ana.id, after=None, limit=5)).items[0]
    assert key.revoked_at is None


async def test_disabling_revokes_the_keys(admins: AdminStores) -> None:
    ana = await add(admins, "ana")
    await add_all_that_belongs_to(admins, ana)
    await admins.accounts.edit(ana.id, lambda each: replace(each, disabled_at=NOW + 1))
    key = (await admins.keys.list(ana.id, after=None, limit=5)).items[0]
    assert key.revoked_at == NOW + 1


async def test_nobody_who_does_not_exist_is_changed_or_deleted(admins: AdminStores) -> None:
    assert await admins.accounts.edit("nobody", lambda each: each) is None
    assert not await admins.accounts.delete("nobody")
    assert not await admins.accounts.set_password("nobody", "hash", NOW, keep_session=None)


async def test_concurrent_changes_are_all_kept(admins: AdminStores) -> None:
    ana = await add(admins, "ana")

    async def give(app_id: str) -> None:
        await admins.accounts.edit(
            ana.id, lambda each: replace(each, app_roles={**each.app_roles, app_id: Role.VIEWER})
        )

    await asyncio.gather(*(give(f"app-{number}") for number in range(5)))
    stored = await admins.accounts.get(ana.id)
    assert stored is not None
    assert set(stored.app_roles) == {f"app-{number}" for number in range(5)}


async def test_the_last_operator_stays(admins: AdminStores) -> None:
    ana = await add(admins, "ana", role=Role.ADMIN)
    await add(admins, "viewer")
    await add(admins, "of one app", role=None, app_roles={"app": Role.ADMIN})
    await add(admins, "gone", role=Role.ADMIN, disabled_at=NOW)
    await add(admins, "invited", role=Role.ADMIN, password_hash=None)
    with pytest.raises(Conflict, match="last active administrator"):
        await admins.accounts.delete(ana.id)
    with pytest.raises(Conflict, match="last active administrator"):
        await admins.accounts.edit(ana.id, lambda each: replace(each, role=Role.EDITOR))
    with pytest.raises(Conflict, match="last active administrator"):
        await admins.accounts.edit(ana.id, lambda each: replace(each, disabled_at=NOW))
    assert await admins.accounts.get(ana.id) == ana
    await admins.accounts.edit(ana.id, lambda each: replace(each, networks=("192.0.2.0/24",)))


async def test_two_operators_cannot_remove_each_other(
    admins: AdminStores, other_node: Engine
) -> None:
    others = make_admin_stores(other_node)
    for _ in range(5):
        ana = await add(admins, "ana", role=Role.ADMIN)
        bob = await add(admins, "bob", role=Role.ADMIN)
        done = await asyncio.gather(
            admins.accounts.delete(ana.id), others.accounts.delete(bob.id), return_exceptions=True
        )
        assert {type(each) for each in done} == {bool, Conflict}
        (left,) = (await admins.accounts.list(after=None, limit=5)).items
        # An account without a password is no operator, so that it can be deleted.
        assert await admins.links.reset(make_link(left.id), NOW, clears_totp=True)
        assert await admins.accounts.delete(left.id)


async def test_everything_is_deleted_with_the_account(admins: AdminStores) -> None:
    ana = await add(admins, "ana")
    await add_all_that_belongs_to(admins, ana)
    assert await admins.accounts.delete(ana.id)
    assert await admins.accounts.find("ana") is None
    assert await count_sign_ins(admins, ana) == (0, False)
    assert (await admins.keys.list(ana.id, after=None, limit=5)).items == ()
    assert await admins.factors.find_totp(ana.id) is None
    assert await admins.factors.list_codes(ana.id) == ()
    assert not await admins.accounts.delete(ana.id)


async def test_a_new_password_ends_the_other_sessions(admins: AdminStores) -> None:
    ana = await add(admins, "ana")
    await add_all_that_belongs_to(admins, ana)
    kept = make_session(ana.id)
    await admins.sessions.start(kept)
    assert await admins.accounts.set_password(ana.id, "new", NOW + 1, keep_session=kept.id)
    stored = await admins.accounts.get(ana.id)
    assert stored == replace(ana, password_hash="new", password_changed_at=NOW + 1)
    assert await admins.sessions.list(ana.id) == (kept,)
    assert await count_sign_ins(admins, ana) == (1, False)


async def test_a_password_is_hashed_again_unless_it_was_changed(admins: AdminStores) -> None:
    ana = await add(admins, "ana", password_hash="old")
    await admins.accounts.rehash_password(ana.id, "another", "wrong")
    await admins.accounts.rehash_password(ana.id, "old", "new")
    stored = await admins.accounts.get(ana.id)
    assert stored == replace(ana, password_hash="new")


async def test_the_first_administrator_is_made_once(
    admins: AdminStores, other_node: Engine
) -> None:
    link, others = make_link(FIRST), make_admin_stores(other_node)
    assert not await admins.links.is_first_stored()
    assert await admins.links.put_first(link)
    assert await admins.links.find(link.token_hash, NOW) == link
    accounts = [make_administrator(name, role=Role.ADMIN) for name in ("ana", "bob")]
    done = await asyncio.gather(
        admins.links.use_first(link.token_hash, accounts[0], NOW),
        others.links.use_first(link.token_hash, accounts[1], NOW),
    )
    assert sorted(done) == [False, True]
    assert len((await admins.accounts.list(after=None, limit=5)).items) == 1
    assert await admins.links.find(link.token_hash, NOW) is None
    assert await admins.links.is_first_stored()


async def test_the_first_link_is_for_an_installation_without_administrators(
    admins: AdminStores,
) -> None:
    link = make_link(FIRST)
    assert await admins.links.put_first(link)
    await add(admins, "ana")
    assert not await admins.links.put_first(make_link(FIRST))
    assert not await admins.links.use_first(link.token_hash, make_administrator("bob"), NOW)


async def test_a_later_first_link_replaces_the_earlier(admins: AdminStores) -> None:
    earlier, later = make_link(FIRST), make_link(FIRST)
    assert await admins.links.put_first(earlier)
    assert await admins.links.put_first(later)
    assert await admins.links.find(earlier.token_hash, NOW) is None
    assert await admins.links.find(later.token_hash, NOW) == later


async def test_a_link_expires(admins: AdminStores) -> None:
    link = make_link(FIRST)
    await admins.links.put_first(link)
    assert await admins.links.find(link.token_hash, NOW + DAY - 1) == link
    assert await admins.links.find(link.token_hash, NOW + DAY) is None
    late = NOW + DAY
    assert not await admins.links.use_first(link.token_hash, make_administrator("ana"), late)


async def test_a_link_is_used_once(admins: AdminStores, other_node: Engine) -> None:
    account = make_administrator("ana", password_hash=None)
    link, others = make_link(account.id), make_admin_stores(other_node)
    await admins.accounts.create(account, link)
    done = await asyncio.gather(
        admins.links.use(link, "first", NOW), others.links.use(link, "second", NOW)
    )
    assert sorted(done) == [False, True]
    stored = await admins.accounts.get(account.id)
    assert stored is not None
    assert stored.password_hash == ("first" if done[0] else "second")


async def test_a_disabled_account_uses_no_link(admins: AdminStores) -> None:
    account = make_administrator("ana", password_hash=None, disabled_at=NOW)
    link = make_link(account.id)
    await admins.accounts.create(account, link)
    assert not await admins.links.use(link, "new", NOW)
    assert await admins.links.find(link.token_hash, NOW) == link


@pytest.mark.parametrize("clears_totp", [False, True])
async def test_a_reset_takes_everything_away(admins: AdminStores, *, clears_totp: bool) -> None:
    ana = await add(admins, "ana")
    await add_all_that_belongs_to(admins, ana)
    link = make_link(ana.id)
    assert await admins.links.reset(link, NOW + 5, clears_totp=clears_totp)
    stored = await admins.accounts.get(ana.id)
    assert stored == replace(ana, password_hash=None)
    assert await count_sign_ins(admins, ana) == (0, False)
    key = (await admins.keys.list(ana.id, after=None, limit=5)).items[0]
    assert key.revoked_at == NOW + 5
    totp = await admins.factors.find_totp(ana.id)
    assert (totp is None) is clears_totp
    assert totp is None or totp.state is TotpState.CURRENT
    assert await admins.links.find(link.token_hash, NOW) == link


async def test_nobody_who_does_not_exist_is_reset(admins: AdminStores) -> None:
    link = make_link("nobody")
    assert not await admins.links.reset(link, NOW, clears_totp=True)
    assert await admins.links.find(link.token_hash, NOW) is None
