"""The contract of `Keys`."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.access.model import ALL_SCOPES, LIVE_API_KEYS_LIMIT, ApiKey
from clarion.access.sql import Keys
from clarion.errors import Conflict, IdempotencyKeyReused
from clarion.idempotency.model import StoredResponse
from tests.factories import DAY, NOW, make_key, make_once, new_app_id
from tests.replacing import replace


async def all_keys(keys: Keys, app_id: str) -> tuple[ApiKey, ...]:
    page = await keys.list(app_id, after=None, limit=100)
    assert page.next is None
    return page.items


@pytest.mark.parametrize("scopes", [ALL_SCOPES, frozenset(list(ALL_SCOPES)[:1])])
async def test_a_key_comes_back_as_made(keys: Keys, scopes: frozenset[str]) -> None:
    key = make_key("app", scopes=scopes, expires_at=NOW + 1, revoked_at=NOW + 2)
    assert await keys.create(key) is None
    assert await keys.find(key.id) == key


async def test_an_unknown_key_is_none(keys: Keys) -> None:
    assert await keys.find("nothing") is None


async def test_a_taken_id_is_a_conflict_even_for_another_app(keys: Keys) -> None:
    key = make_key("app")
    await keys.create(key)
    with pytest.raises(Conflict):
        await keys.create(make_key("other", id=key.id))
    assert await keys.find(key.id) == key


async def test_revoking_says_when_and_returns_the_key(keys: Keys) -> None:
    key = make_key("app")
    await keys.create(key)
    revoked = await keys.revoke("app", key.id, NOW + 5)
    assert revoked is not None
    assert revoked.revoked_at == NOW + 5
    assert await keys.find(key.id) == revoked


async def test_revoking_again_changes_nothing(keys: Keys) -> None:
    key = make_key("app")
    await keys.create(key)
    first = await keys.revoke("app", key.id, NOW)
    assert await keys.revoke("app", key.id, NOW + DAY) == first


async def test_another_app_cannot_revoke_a_key(keys: Keys) -> None:
    key = make_key("app")
    await keys.create(key)
    assert await keys.revoke("other", key.id, NOW) is None
    assert await keys.find(key.id) == key


async def test_an_unknown_key_cannot_be_revoked(keys: Keys) -> None:
    assert await keys.revoke("app", "nothing", NOW) is None


async def test_the_list_holds_the_keys_of_one_app_whatever_their_state(keys: Keys) -> None:
    mine = [make_key("app"), make_key("app", expires_at=1), make_key("app", revoked_at=1)]
    for key in (*mine, make_key("other")):
        await keys.create(key)
    assert await all_keys(keys, "app") == tuple(mine)


async def test_the_list_of_an_unknown_app_is_empty(keys: Keys) -> None:
    assert await all_keys(keys, "nobody") == ()


async def test_the_list_goes_on_behind_an_id_even_one_that_is_not_there(keys: Keys) -> None:
    made = [make_key("app", id=name) for name in ("a", "c", "e")]
    for key in made:
        await keys.create(key)
    assert (await keys.list("app", after="a", limit=9)).items == tuple(made[1:])
    assert (await keys.list("app", after="d", limit=9)).items == (made[2],)
    assert (await keys.list("app", after="e", limit=9)).items == ()


# One database serves all examples: each lists the keys of an app of its own.
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 12), limit=st.integers(1, 13))
async def test_pages_hold_every_key_once_in_the_order_of_ids(
    keys: Keys, count: int, limit: int
) -> None:
    app_id = new_app_id()
    made = [make_key(app_id) for _ in range(count)]
    await asyncio.gather(*(keys.create(key) for key in reversed(made)))
    seen: list[ApiKey] = []
    after: str | None = None
    for _ in range(-(-count // limit) or 1):
        page = await keys.list(app_id, after=after, limit=limit)
        assert len(page.items) <= limit
        seen += page.items
        after = page.next
    assert after is None
    assert seen == made


async def test_a_repeat_gets_the_first_answer_and_adds_nothing(keys: Keys) -> None:
    first = make_key("app")
    assert await keys.create(first, make_once("app")) is None
    again = await keys.create(make_key("app"), make_once("app", answer=b"another", now=NOW + 1))
    assert again == StoredResponse(b"the answer")
    assert await all_keys(keys, "app") == (first,)


async def test_the_same_idempotency_key_for_another_request_is_refused(keys: Keys) -> None:
    first = make_key("app")
    await keys.create(first, make_once("app"))
    with pytest.raises(IdempotencyKeyReused):
        await keys.create(make_key("app"), make_once("app", fingerprint=b"other"))
    assert await all_keys(keys, "app") == (first,)


async def test_an_idempotency_key_holds_until_it_expires_and_no_longer(keys: Keys) -> None:
    await keys.create(make_key("app"), make_once("app"))
    before = make_once("app", now=NOW + DAY - 1, expires_at=NOW + 2 * DAY)
    assert await keys.create(make_key("app"), before) == StoredResponse(b"the answer")
    at = make_once("app", now=NOW + DAY, expires_at=NOW + 2 * DAY, answer=b"new", fingerprint=b"n")
    assert await keys.create(make_key("app"), at) is None
    later = make_once("app", now=NOW + DAY + 1, fingerprint=b"n")
    assert await keys.create(make_key("app"), later) == StoredResponse(b"new")


async def test_apps_do_not_share_idempotency_keys(keys: Keys) -> None:
    await keys.create(make_key("app"), make_once("app"))
    other = make_key("other")
    assert await keys.create(other, make_once("other", fingerprint=b"x")) is None
    assert await all_keys(keys, "other") == (other,)


async def test_a_conflict_leaves_the_idempotency_key_unused(keys: Keys) -> None:
    taken = make_key("app")
    await keys.create(taken)
    with pytest.raises(Conflict):
        await keys.create(make_key("app", id=taken.id), make_once("app"))
    fresh = make_key("app")
    assert await keys.create(fresh, make_once("app", fingerprint=b"mended")) is None
    assert await all_keys(keys, "app") == (taken, fresh)


async def test_of_many_repeats_at_once_one_is_made_and_all_get_its_answer(keys: Keys) -> None:
    made = [make_key("app") for _ in range(20)]
    tries = [(key, make_once("app", answer=key.id.encode())) for key in made]
    outcomes = await asyncio.gather(*(keys.create(key, once) for key, once in tries))
    (winner,) = await all_keys(keys, "app")
    assert outcomes.count(None) == 1
    assert {outcome.answer for outcome in outcomes if outcome} == {winner.id.encode()}


async def test_rotating_adds_a_key_and_ends_the_old_one_later(keys: Keys) -> None:
    old, new = make_key("app"), make_key("app")
    await keys.create(old)
    assert await keys.rotate(old.id, new, now=NOW, ends_at=NOW + 10) is None
    assert await keys.find(old.id) == replace(old, expires_at=NOW + 10, replaced_by=new.id)
    assert await keys.find(new.id) == new


async def test_rotating_does_not_prolong_a_key(keys: Keys) -> None:
    old = make_key("app", expires_at=NOW + 5)
    await keys.create(old)
    await keys.rotate(old.id, make_key("app"), now=NOW, ends_at=NOW + 10)
    found = await keys.find(old.id)
    assert found is not None
    assert found.expires_at == NOW + 5


async def test_a_key_is_rotated_once_whatever_else_happens(keys: Keys) -> None:
    old = make_key("app")
    await keys.create(old)
    calls = (keys.rotate(old.id, make_key("app"), now=NOW, ends_at=NOW + 10) for _ in range(5))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in outcomes].count(Conflict) == 4
    assert len(await all_keys(keys, "app")) == 2


@pytest.mark.parametrize("change", [{"revoked_at": NOW}, {"expires_at": NOW}, {"app_id": "other"}])
async def test_a_key_that_ended_or_is_anothers_is_not_rotated(
    keys: Keys, change: dict[str, Any]
) -> None:
    old = replace(make_key("app"), **change)
    await keys.create(old)
    with pytest.raises(Conflict, match="revoked, has expired, or was rotated"):
        await keys.rotate(old.id, make_key("app"), now=NOW, ends_at=NOW + 10)
    assert await keys.find(old.id) == old


async def test_a_repeated_rotation_gets_the_first_response(keys: Keys) -> None:
    old, new = make_key("app"), make_key("app")
    await keys.create(old)
    assert await keys.rotate(old.id, new, now=NOW, ends_at=NOW, once=make_once("app")) is None
    replay = await keys.rotate(old.id, make_key("app"), now=NOW, ends_at=NOW, once=make_once("app"))
    assert replay == StoredResponse(b"the answer")
    assert len(await all_keys(keys, "app")) == 2


async def test_an_app_has_a_limited_number_of_live_keys(keys: Keys) -> None:
    made = [make_key("app") for _ in range(LIVE_API_KEYS_LIMIT)]
    await asyncio.gather(*map(keys.create, made))
    with pytest.raises(Conflict, match="1,000 live API keys"):
        await keys.create(make_key("app"))
    with pytest.raises(Conflict, match="1,000 live API keys"):
        await keys.rotate(made[0].id, make_key("app"), now=NOW, ends_at=NOW + 10)
    assert await keys.create(make_key("other")) is None
    await keys.revoke("app", made[0].id, NOW)
    once = make_once("app")
    assert await keys.create(make_key("app", expires_at=NOW + 5), once) is None
    assert await keys.create(make_key("app"), once) == StoredResponse(once.answer)
    with pytest.raises(Conflict):
        await keys.create(make_key("app"))
    assert await keys.create(make_key("app", created_at=NOW + 5)) is None


async def test_the_last_use_is_recorded_and_never_goes_back(keys: Keys) -> None:
    used, unused = make_key("app"), make_key("app")
    for key in (used, unused):
        await keys.create(key)
    await keys.touch([used.id, "nothing"], NOW)
    await keys.touch([used.id], NOW - 1)
    await keys.touch([], NOW)
    assert await keys.find(used.id) == replace(used, last_used_at=NOW)
    assert await keys.find(unused.id) == unused
