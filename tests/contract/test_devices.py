"""The `Devices` port."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clarion.catalog.model import Category
from clarion.errors import IdempotencyKeyReused
from clarion.idempotency.model import StoredResponse
from clarion.people.model import UserStatus
from clarion.people.sql import Users
from clarion.push.messages import History, Messages
from clarion.push.model import (
    Device,
    DeviceDetails,
    DeviceFilter,
    DevicePreferences,
    InvalidationReason,
    MessageReason,
    MessageStatus,
    Platform,
)
from clarion.push.sql.devices import TOUCH_LIMIT, Devices
from clarion.push.sql.feedback import FeedbackList
from clarion.push.sql.messages import SqlMessages
from clarion.push.sql.topics import Broadcasts
from clarion.push.tables import DEVICES
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement
from tests.factories import DAY, NOW, make_device, make_message, make_once, make_user, new_app_id
from tests.replacing import replace

DETAILS = DeviceDetails(
    user_id="änna",
    model="Pixel 9",
    os_version="16",
    app_version="1.2",
    language="de",
    timezone="Europe/Berlin",
    label="Telefon 📱",
)
SELECT_ALL = statement(
    "select_all_devices",
    f"SELECT {DEVICES.columns} FROM devices WHERE app_id = :app_id ORDER BY id",  # noqa: S608 - constants
)
QUEUED = (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)


async def added(devices: Devices, device: Device) -> Device:
    assert await devices.add(device) is True
    return device


async def refresh(devices: Devices, device: Device) -> Device | None:
    """Refresh a device as the app may."""
    return await devices.refresh(device, is_by_app=True)


async def all_devices(devices: Devices, app_id: str) -> list[Device]:
    """Return the devices of an app, whoever's they are."""
    assert isinstance(devices, Devices)
    return list(map(DEVICES.read, await devices._engine.fetch(SELECT_ALL, app_id=app_id)))


async def devices_of(devices: Devices, app_id: str, user_id: str) -> list[Device]:
    page = await devices.list(app_id, user_id, after=None, limit=100)
    assert page.next is None
    return list(page.items)


@pytest.mark.parametrize("platform", Platform)
async def test_a_device_comes_back_as_made(devices: Devices, platform: Platform) -> None:
    device = await added(devices, make_device(platform=platform, details=DETAILS))
    assert await devices.get("app", device.id) == device
    assert await devices.find(device.app_id, device.token_hash) == device


async def test_details_that_are_unknown_come_back_unknown(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.get("app", device.id) == device


async def test_an_unknown_device_is_none(devices: Devices) -> None:
    assert await devices.get("app", "nobody") is None
    assert await devices.find("app", b"nothing") is None


async def test_a_taken_token_is_not_added_again(devices: Devices) -> None:
    first = await added(devices, make_device())
    assert await devices.add(make_device(token_hash=first.token_hash, details=DETAILS)) is False
    assert await all_devices(devices, "app") == [first]


async def test_of_many_with_one_token_at_once_one_is_added(devices: Devices) -> None:
    made = [make_device(token_hash=b"same") for _ in range(20)]
    outcomes = await asyncio.gather(*map(devices.add, made))
    assert outcomes.count(True) == 1
    assert await all_devices(devices, "app") == [made[outcomes.index(True)]]


async def test_two_nodes_that_race_for_one_token_add_one_device(
    devices: Devices, other_node: Engine
) -> None:
    elsewhere = Devices(other_node)
    for _ in range(5):
        token_hash, app_id = make_device().token_hash, new_app_id()
        made = [make_device(app_id, token_hash=token_hash) for _ in range(10)]
        adding = [(devices, elsewhere)[i % 2].add(each) for i, each in enumerate(made)]
        outcomes = await asyncio.gather(*adding)
        assert outcomes.count(True) == 1
        assert await all_devices(elsewhere, app_id) == [made[outcomes.index(True)]]


async def test_two_nodes_that_race_to_refresh_a_token_agree_on_one_device(
    devices: Devices, other_node: Engine
) -> None:
    made = [make_device(token_hash=b"same") for _ in range(20)]
    nodes = (devices, Devices(other_node))
    first = await added(devices, made[0])
    outcomes = await asyncio.gather(*(refresh(nodes[i % 2], d) for i, d in enumerate(made)))
    assert {each.id for each in outcomes if each} == {first.id}
    assert [each.id for each in await all_devices(devices, "app")] == [first.id]


async def test_a_repeat_gets_the_first_answer_and_adds_nothing(devices: Devices) -> None:
    first = make_device()
    assert await devices.add(first, make_once("app")) is True
    again = await devices.add(make_device(), make_once("app", answer=b"another", now=NOW + 1))
    assert again == StoredResponse(b"the answer")
    assert await all_devices(devices, "app") == [first]


async def test_the_same_idempotency_key_for_another_request_is_refused(devices: Devices) -> None:
    first = make_device()
    await devices.add(first, make_once("app"))
    with pytest.raises(IdempotencyKeyReused):
        await devices.add(make_device(), make_once("app", fingerprint=b"other"))
    assert await all_devices(devices, "app") == [first]


async def test_a_taken_token_leaves_the_idempotency_key_unused(devices: Devices) -> None:
    first = await added(devices, make_device())
    taken = make_device(token_hash=first.token_hash)
    assert await devices.add(taken, make_once("app")) is False
    assert await devices.add(make_device(), make_once("app", fingerprint=b"corrected")) is True


async def test_an_idempotency_key_that_has_expired_can_be_used_again(devices: Devices) -> None:
    await devices.add(make_device(), make_once("app"))
    later = make_once("app", fingerprint=b"new", now=NOW + DAY, expires_at=NOW + 2 * DAY)
    assert await devices.add(make_device(), later) is True


async def test_refreshing_keeps_what_the_device_is_and_takes_what_it_says(
    devices: Devices,
) -> None:
    old = await added(devices, make_device(details=DETAILS))
    news = DeviceDetails(model="Pixel 10", label="Neu")
    again = make_device(
        token_hash=old.token_hash,
        secret_hash=b"another",
        platform=Platform.ANDROID,
        details=news,
        created_at=NOW + 5,
        last_seen_at=NOW + 5,
    )
    expected = replace(
        old,
        platform=Platform.ANDROID,
        details=replace(DETAILS, model="Pixel 10", label="Neu"),
        last_seen_at=NOW + 5,
    )
    assert await refresh(devices, again) == expected
    assert await devices.get("app", old.id) == expected


async def test_refreshing_makes_a_device_valid_again(devices: Devices) -> None:
    device = await added(devices, make_device())
    await devices.invalidate("app", device.id, InvalidationReason.UNINSTALLED, NOW)
    assert await refresh(devices, make_device(token_hash=device.token_hash)) == device


async def test_refreshing_a_token_that_nobody_has_does_nothing(devices: Devices) -> None:
    assert await refresh(devices, make_device()) is None
    assert await all_devices(devices, "app") == []


async def test_apps_have_the_same_token_without_knowing(devices: Devices) -> None:
    device = await added(devices, make_device(details=DETAILS, secret_hash=b"ours"))
    theirs = make_device("other", token_hash=device.token_hash, secret_hash=b"theirs")
    assert await refresh(devices, theirs) is None
    await added(devices, theirs)
    assert await devices.find("app", device.token_hash) == device
    assert await devices.find("other", device.token_hash) == theirs
    assert await devices.authenticate(device.token_hash, b"ours") == device
    assert await devices.authenticate(device.token_hash, b"theirs") == theirs
    assert await devices.delete("other", theirs.id, NOW) is not None
    assert await devices.find("app", device.token_hash) == device


@pytest.mark.parametrize("owner", ["ana", None])
async def test_a_user_refreshes_the_device_of_another_with_its_secret_alone(
    devices: Devices, owner: str | None
) -> None:
    device = await added(
        devices, make_device(details=DeviceDetails(user_id=owner), secret_hash=b"proof")
    )
    theirs = make_device(token_hash=device.token_hash, details=DeviceDetails(user_id="bo"))
    for proof in (b"", b"guess", device.token_hash, theirs.secret_hash):
        assert await devices.refresh(theirs, is_by_app=False, proof=proof) is None
    assert await devices.get("app", device.id) == device
    taken = await devices.refresh(theirs, is_by_app=False, proof=b"proof")
    assert taken is not None
    assert (taken.id, taken.details.user_id) == (device.id, "bo")
    assert taken.secret_hash == theirs.secret_hash
    again = replace(theirs, secret_hash=b"not taken")
    assert await devices.refresh(again, is_by_app=False) == taken
    by_app = replace(again, details=DeviceDetails(user_id="ana"))
    moved = await devices.refresh(by_app, is_by_app=True)
    assert moved is not None
    assert moved.secret_hash == theirs.secret_hash


async def with_queue(
    devices: Devices, messages: Messages, broadcasts: Broadcasts, user_id: str | None
) -> Device:
    device = await added(devices, make_device(details=DeviceDetails(user_id=user_id)))
    await messages.add(make_message(device.id), *QUEUED)
    await broadcasts.subscribe("app", device.id, "news", NOW)
    return device


async def count_queue(device: Device, messages: Messages, broadcasts: Broadcasts) -> list[int]:
    waiting = await messages.waiting(device.id, now=NOW, limit=9)
    return [len(waiting), len(await broadcasts.subscriptions(device.id))]


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [("ana", "bo", [0, 0]), ("ana", "ana", [1, 1]), ("ana", None, [1, 1]), (None, "bo", [1, 1])],
)
@pytest.mark.parametrize("way", ["refresh", "update"])
async def test_the_queue_of_the_former_user_is_dropped(
    devices: Devices,
    messages: Messages,
    broadcasts: Broadcasts,
    before: str | None,
    after: str | None,
    left: list[int],
    way: str,
) -> None:
    device = await with_queue(devices, messages, broadcasts, before)
    others = await with_queue(devices, messages, broadcasts, "ana")
    details = DeviceDetails(user_id=after)
    if way == "refresh":
        await refresh(devices, make_device(token_hash=device.token_hash, details=details))
    else:
        await devices.update("app", device.id, details, NOW)
    assert await count_queue(device, messages, broadcasts) == left
    assert await count_queue(others, messages, broadcasts) == [1, 1]


async def test_a_refused_refresh_leaves_the_queue(
    devices: Devices, messages: Messages, broadcasts: Broadcasts
) -> None:
    device = await with_queue(devices, messages, broadcasts, "ana")
    theirs = make_device(token_hash=device.token_hash, details=DeviceDetails(user_id="bo"))
    assert await devices.refresh(theirs, is_by_app=False) is None
    assert await count_queue(device, messages, broadcasts) == [1, 1]


async def test_a_device_authenticates_while_it_is_valid_and_its_user_active(
    devices: Devices, users: Users
) -> None:
    of_ana = DeviceDetails(user_id="ana")
    device = await added(devices, make_device(secret_hash=b"secret", details=of_ana))
    known = (device.token_hash, b"secret")
    assert await devices.authenticate(*known) == device
    assert await devices.authenticate(device.token_hash, b"another") is None
    for status, expected in ((UserStatus.INACTIVE, None), (UserStatus.ACTIVE, device)):
        await users.put(make_user(app_id="app", id="ana", status=status))
        assert await devices.authenticate(*known) == expected
    await users.put(make_user(app_id="other", id="ana", status=UserStatus.INACTIVE))
    assert await devices.authenticate(*known) == device
    await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
    assert await devices.authenticate(*known) is None


async def test_the_invalid_devices_of_a_user_but_the_last_ones(devices: Devices) -> None:
    app_id, of_ana = new_app_id(), DeviceDetails(user_id="ana")
    made = [
        await added(devices, make_device(app_id=app_id, details=details))
        for details in (of_ana, of_ana, of_ana, of_ana, DeviceDetails(user_id="bo"))
    ]
    for moment, index in enumerate((1, 3, 0, 4)):
        reason = InvalidationReason.REVOKED
        await devices.invalidate(app_id, made[index].id, reason, NOW + moment)
    found = await devices.invalid_of_user(app_id, "ana", keep=1, limit=9)
    assert found == (made[3].id, made[1].id)
    assert await devices.invalid_of_user(app_id, "ana", keep=1, limit=1) == (made[3].id,)
    assert await devices.invalid_of_user(app_id, "ana", keep=3, limit=9) == ()


async def test_a_device_can_get_another_secret(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.set_secret("app", device.id, b"new") is True
    assert await devices.find(device.app_id, device.token_hash) == replace(
        device, secret_hash=b"new"
    )


async def test_only_the_app_s_own_devices_get_another_secret(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.set_secret("other", device.id, b"new") is False
    assert await devices.set_secret("app", "nobody", b"new") is False
    assert await devices.get("app", device.id) == device


@pytest.mark.parametrize("field", list(asdict(DETAILS)))
async def test_an_update_takes_over_what_is_given_alone(devices: Devices, field: str) -> None:
    device = await added(devices, make_device(details=DETAILS))
    expected = replace(device, details=replace(DETAILS, **{field: "new"}))
    assert await devices.update("app", device.id, DeviceDetails(**{field: "new"}), NOW) == expected
    assert await devices.get("app", device.id) == expected


async def test_an_update_of_nothing_changes_nothing(devices: Devices) -> None:
    device = await added(devices, make_device(details=DETAILS))
    assert await devices.update("app", device.id, DeviceDetails(), NOW) == device


async def test_only_the_app_s_own_devices_are_updated(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.update("other", device.id, DETAILS, NOW) is None
    assert await devices.update("app", "nobody", DETAILS, NOW) is None
    assert await devices.get("app", device.id) == device


async def test_a_device_is_got_by_its_own_app_and_found_by_its_token(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.get("other", device.id) is None
    assert await devices.find(device.app_id, device.token_hash) == device


async def test_a_device_is_got_and_found_whatever_its_state(devices: Devices) -> None:
    device = await added(devices, make_device())
    invalidated = await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW + 1)
    assert await devices.get("app", device.id) == invalidated
    assert await devices.find(device.app_id, device.token_hash) == invalidated


async def test_the_list_holds_the_devices_of_one_app_whatever_their_state(
    devices: Devices,
) -> None:
    ana = DeviceDetails(user_id="ana")
    mine = [await added(devices, make_device(details=ana)) for _ in range(3)]
    await added(devices, make_device("other", details=ana))
    mine[1] = (
        await devices.invalidate("app", mine[1].id, InvalidationReason.REVOKED, NOW) or mine[1]
    )
    assert await devices_of(devices, "app", "ana") == mine
    assert await devices_of(devices, "nobody", "ana") == []


async def test_the_list_of_a_user_holds_that_user_s_devices_in_that_app(
    devices: Devices,
) -> None:
    ana, ben = DeviceDetails(user_id="ana"), DeviceDetails(user_id="ben")
    hers = [await added(devices, make_device(details=ana)) for _ in range(2)]
    for other in (make_device(details=ben), make_device(), make_device("other", details=ana)):
        await added(devices, other)
    assert await devices_of(devices, "app", "ana") == hers
    assert await devices_of(devices, "app", "") == []


async def test_the_devices_of_an_app_are_listed_by_each_filter(devices: Devices) -> None:
    ana = DeviceDetails(user_id="ana")
    ios, web = {"platform": Platform.IOS}, {"platform": Platform.WEB}
    made = [
        await added(devices, make_device(**each))
        for each in (ios, {**web, "details": ana}, {**ios, "details": ana}, web, ios)
    ]
    await added(devices, make_device("other", **ios))
    ids = [device.id for device in made]
    for n in (2, 3):
        await devices.invalidate("app", ids[n], InvalidationReason.REVOKED, NOW)

    async def listed(**conditions: Any) -> list[int]:
        found: list[int] = []
        after: str | None = None
        while True:
            chosen = DeviceFilter(**conditions)
            page = await devices.list_all("app", chosen, after=after, limit=2)
            found += [ids.index(device.id) for device in page.items]
            after = page.next
            if after is None:
                return found

    assert await listed() == [0, 1, 2, 3, 4]
    assert await listed(user_id="ana") == [1, 2]
    assert await listed(platform=Platform.IOS) == [0, 2, 4]
    assert await listed(is_valid=False) == [2, 3]
    assert await listed(is_valid=True) == [0, 1, 4]
    assert await listed(is_valid=False, platform=Platform.IOS) == [2]
    assert await listed(is_valid=True, user_id="ana", platform=Platform.WEB) == [1]


# One database serves all examples: each lists the devices of an app of its own.
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(0, 9), limit=st.integers(1, 10))
async def test_pages_hold_every_device_once_in_order_while_more_are_added(
    devices: Devices, *, count: int, limit: int
) -> None:
    app_id, ana = new_app_id(), DeviceDetails(user_id="ana")
    made = [make_device(app_id, details=ana) for _ in range(count)]
    await asyncio.gather(*(devices.add(device) for device in reversed(made)))
    seen: list[Device] = []
    after: str | None = None
    while True:
        page = await devices.list(app_id, "ana", after=after, limit=limit)
        assert len(page.items) <= limit
        seen += page.items
        after = page.next
        if after is None:
            break
        if len(made) < count + 3:
            made.append(await added(devices, make_device(app_id, details=ana)))
    assert seen == made


async def test_touching_sets_when_devices_were_last_seen(devices: Devices) -> None:
    seen = [await added(devices, make_device()) for _ in range(3)]
    other = await added(devices, make_device())
    await devices.touch({device.id: NOW + 5 for device in seen} | {"nobody": NOW}, NOW + 7)
    expected = [replace(device, last_seen_at=NOW + 7, connected_at=NOW + 5) for device in seen]
    assert await all_devices(devices, "app") == [*expected, other]


async def test_touching_keeps_when_the_newest_connection_was_opened(devices: Devices) -> None:
    device = await added(devices, make_device())
    for opened_at, newest in ((NOW + 2, NOW + 2), (NOW + 1, NOW + 2), (NOW + 3, NOW + 3)):
        await devices.touch({device.id: opened_at}, NOW + 7)
        found = await devices.get("app", device.id)
        assert found is not None
        assert found.connected_at == newest


async def test_many_devices_are_touched_in_commits_of_limited_size(
    devices: Devices, engine: Engine
) -> None:
    made = [await added(devices, make_device()) for _ in range(3)]
    ids = [f"unknown-{number}" for number in range(2 * TOUCH_LIMIT)]
    written = CountingEngine(engine)
    touched = dict.fromkeys([made[0].id, *ids, made[1].id], NOW)
    await Devices(written).touch(touched, NOW + 7)  # type: ignore[arg-type]
    assert written.rows == [TOUCH_LIMIT, TOUCH_LIMIT, 2]
    seen = [await devices.get("app", device.id) for device in made]
    assert [device and device.last_seen_at for device in seen] == [NOW + 7, NOW + 7, NOW]


class CountingEngine:
    """Writes to an engine, and counts the rows of each unit."""

    def __init__(self, engine: Engine) -> None:
        self.rows: list[int] = []
        self._engine = engine

    async def write(self, unit: Unit) -> object:
        self.rows.append(sum(len(step.rows) for step in unit.steps))
        return await self._engine.write(unit)


async def test_touching_nothing_does_nothing(devices: Devices) -> None:
    device = await added(devices, make_device())
    await devices.touch({}, NOW + 7)
    assert await devices.get("app", device.id) == device


@pytest.mark.parametrize("reason", InvalidationReason)
async def test_invalidating_a_device_says_when_and_why(
    devices: Devices, reason: InvalidationReason
) -> None:
    device = await added(devices, make_device())
    invalidated = await devices.invalidate("app", device.id, reason, NOW + 1)
    assert invalidated == replace(device, invalidated_at=NOW + 1, invalidation_reason=reason)
    assert await devices.get("app", device.id) == invalidated


async def test_invalidating_a_device_again_changes_nothing(devices: Devices) -> None:
    device = await added(devices, make_device())
    invalidated = await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
    assert (
        await devices.invalidate("app", device.id, InvalidationReason.UNINSTALLED, NOW + 1) is None
    )
    assert await devices.get("app", device.id) == invalidated


async def test_only_the_devices_of_the_app_are_invalidated(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.invalidate("other", device.id, InvalidationReason.REVOKED, NOW) is None
    assert await devices.invalidate("app", "nobody", InvalidationReason.REVOKED, NOW) is None
    assert await devices.get("app", device.id) == device


async def test_messages_that_wait_for_an_invalidated_device_fail(
    devices: Devices, messages: Messages, history: History
) -> None:
    device = await added(devices, make_device())
    queued, pending = (make_message(device.id) for _ in range(2))
    done, elsewhere = make_message(device.id), make_message("other device")
    for message in (queued, done, elsewhere):
        await messages.add(message, *QUEUED)
    await messages.add(pending, MessageStatus.PENDING, None)
    await messages.acknowledge([(device.id, done.id)], NOW + 1)
    await devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW + 2)
    for message in (queued, pending):
        record = await history.get("app", device.id, message.id)
        assert record is not None
        assert (record.status, record.reason, record.updated_at) == (
            MessageStatus.FAILED,
            MessageReason.UNREGISTERED,
            NOW + 2,
        )
    assert await messages.waiting(device.id, now=NOW, limit=9) == ()
    assert await messages.waiting("other device", now=NOW, limit=9) == (elsewhere,)
    kept = await history.get("app", device.id, done.id)
    assert kept is not None
    assert kept.status is MessageStatus.DELIVERED


async def test_a_message_added_while_a_device_is_invalidated_does_not_wait(
    devices: Devices, messages: Messages
) -> None:
    for _ in range(10):
        device = await added(devices, make_device())
        adding = [messages.add(make_message(device.id), *QUEUED) for _ in range(6)]
        invalidating = devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
        await asyncio.gather(*adding[:3], invalidating, *adding[3:])
        assert await messages.waiting(device.id, now=NOW, limit=9) == ()


async def test_a_message_another_node_adds_after_invalidation_is_never_delivered(
    devices: Devices, messages: Messages, other_node: Engine
) -> None:
    elsewhere = SqlMessages(other_node)
    for _ in range(10):
        device = await added(devices, make_device())
        adding = [elsewhere.add(make_message(device.id), *QUEUED) for _ in range(6)]
        invalidating = devices.invalidate("app", device.id, InvalidationReason.REVOKED, NOW)
        await asyncio.gather(*adding, invalidating)
        await refresh(devices, device)
        assert await messages.waiting(device.id, now=NOW, limit=9) == ()


async def test_deleting_returns_the_device_and_leaves_nothing_of_it(devices: Devices) -> None:
    device = await added(devices, make_device(details=DETAILS))
    removed = await devices.delete("app", device.id, NOW)
    assert removed is not None
    assert (removed.id, removed.details) == (device.id, DETAILS)
    assert await devices.find(device.app_id, device.token_hash) is None
    assert await all_devices(devices, "app") == []
    assert await devices.delete("app", device.id, NOW) is None


async def test_a_deleted_token_can_be_registered_anew(devices: Devices) -> None:
    device = await added(devices, make_device())
    await devices.delete("app", device.id, NOW)
    anew = await added(devices, make_device(token_hash=device.token_hash))
    assert await devices.find(device.app_id, device.token_hash) == anew


async def test_only_the_app_s_own_devices_are_deleted(devices: Devices) -> None:
    device = await added(devices, make_device())
    assert await devices.delete("other", device.id, NOW) is None
    assert await devices.delete("app", "nobody", NOW) is None
    assert await devices.get("app", device.id) == device


async def test_deleting_a_device_deletes_its_subscriptions_and_keeps_its_history(
    devices: Devices, broadcasts: Broadcasts, messages: Messages, history: History
) -> None:
    device = await added(devices, make_device())
    message = make_message(device.id)
    await messages.add(message, *QUEUED)
    await broadcasts.subscribe("app", device.id, "news", NOW)
    await broadcasts.subscribe("app", "another", "news", NOW)
    await devices.delete("app", device.id, NOW)
    assert await broadcasts.subscriptions(device.id) == ()
    assert len(await broadcasts.subscriptions("another")) == 1
    record = await history.get("app", device.id, message.id)
    assert record is not None
    assert (record.status, record.reason) == (MessageStatus.FAILED, MessageReason.UNREGISTERED)


@pytest.mark.parametrize("is_valid", [True, False])
async def test_deleting_adds_the_token_to_the_feedback_once(
    devices: Devices, feedback: FeedbackList, *, is_valid: bool
) -> None:
    device = await added(devices, make_device())
    if not is_valid:
        await devices.invalidate("app", device.id, InvalidationReason.UNINSTALLED, NOW)
    await devices.delete("app", device.id, NOW + 1)
    page = await feedback.list("app", since=0, after=None, limit=9)
    expected = ("deleted", NOW + 1) if is_valid else ("uninstalled", NOW)
    assert [(each.reason, each.invalidated_at) for each in page.items] == [expected]


async def test_refreshing_and_invalidating_at_once_leave_the_device_in_one_of_both_states(
    devices: Devices, other_node: Engine
) -> None:
    elsewhere = Devices(other_node)
    device = await added(devices, make_device())
    for moment in range(NOW, NOW + 10):
        invalidating = devices.invalidate("app", device.id, InvalidationReason.REVOKED, moment)
        refreshed, invalidated = await asyncio.gather(refresh(elsewhere, device), invalidating)
        assert refreshed == device
        assert await devices.get("app", device.id) in (device, invalidated)
        await refresh(devices, device)


async def test_the_valid_devices_of_a_user_come_as_they_were_seen(devices: Devices) -> None:
    app_id, of_ana = new_app_id(), DeviceDetails(user_id="ana")
    made = [
        await added(devices, make_device(app_id=app_id, details=of_ana, last_seen_at=NOW + seen))
        for seen in (3, 1, 4, 2)
    ]
    await added(devices, make_device(app_id=app_id, details=DeviceDetails(user_id="bo")))
    await added(devices, make_device(app_id=new_app_id(), details=of_ana))
    await devices.invalidate(app_id, made[2].id, InvalidationReason.REVOKED, NOW)
    expected = [made[0], made[3], made[1]]
    assert list(await devices.valid_of_user(app_id, "ana", 9)) == expected
    assert list(await devices.valid_of_user(app_id, "ana", 2)) == expected[:2]


async def test_many_devices_of_an_app_are_found_in_one_read(devices: Devices) -> None:
    made = [await added(devices, make_device(app_id)) for app_id in ("app", "other", "app")]
    await devices.invalidate("app", made[2].id, InvalidationReason.REVOKED, NOW)
    found = await devices.find_many("app", [*(each.id for each in made), "nobody"])
    assert {each: found[each].is_valid for each in found} == {made[0].id: True, made[2].id: False}
    assert await devices.find_many("app", []) == {}


async def test_the_valid_devices_of_many_users_are_read_at_once(devices: Devices) -> None:
    app_id = new_app_id()
    made = {
        user_id: [
            await added(
                devices,
                make_device(
                    app_id, details=DeviceDetails(user_id=user_id), last_seen_at=NOW + seen
                ),
            )
            for seen in (3, 1, 4)
        ]
        for user_id in ("ana", "bo", "eve")
    }
    await added(devices, make_device(details=DeviceDetails(user_id="ana")))
    await devices.invalidate(app_id, made["bo"][2].id, InvalidationReason.REVOKED, NOW)
    found = await devices.valid_of_users(app_id, {"ana", "bo", "nobody"}, 2)
    ana, bo = made["ana"], made["bo"]
    assert found == {"ana": (ana[2], ana[0]), "bo": (bo[0], bo[1])}
    assert await devices.valid_of_users(app_id, (), 2) == {}


async def test_an_address_and_preferences_come_back_as_made(devices: Devices) -> None:
    preferences = DevicePreferences(
        enabled=False,
        categories={Category.NEWS: False},
        types={"LIKE": False},
        quiet_hours=(True,) * 24,
    )
    device = await added(devices, make_device(address=b"\x00sealed\xff", preferences=preferences))
    assert await devices.get("app", device.id) == device
    assert "sealed" not in repr(device)


async def test_a_device_takes_its_address_anew_and_one_of_ours_never_gets_one(
    devices: Devices,
) -> None:
    foreign = await added(devices, make_device(address=b"old"))
    own = await added(devices, make_device())
    assert await refresh(devices, replace(foreign, address=b"new")) == replace(
        foreign, address=b"new"
    )
    assert await refresh(devices, replace(own, address=b"new")) == own
    # It has registered for our own gateway since.
    assert await refresh(devices, replace(foreign, address=None)) == replace(foreign, address=None)


async def test_a_device_that_registered_again_is_not_gone(
    devices: Devices, feedback: FeedbackList
) -> None:
    device = await added(devices, make_device(address=b"old"))
    await refresh(devices, replace(device, address=b"new", last_seen_at=NOW + 1))
    gone = (device.app_id, device.id, InvalidationReason.UNINSTALLED, NOW + 2)
    assert await devices.invalidate(*gone, address=b"old") is None
    assert (await devices.get("app", device.id) or device).is_valid
    invalidated = await devices.invalidate(*gone, address=b"new")
    assert invalidated is not None
    assert not invalidated.is_valid
    page = await feedback.list("app", since=0, after=None, limit=9)
    assert [(each.token_hash, each.reason) for each in page.items] == [
        (device.token_hash, InvalidationReason.UNINSTALLED)
    ]


async def test_concurrent_changes_of_preferences_do_not_overwrite_each_other(
    devices: Devices, other_node: Engine
) -> None:
    device = await added(devices, make_device())

    def turn_off(name: str) -> Callable[[DevicePreferences], DevicePreferences]:
        return lambda old: DevicePreferences(types={**old.types, name: False})

    nodes = (devices, Devices(other_node))
    await asyncio.gather(
        *(nodes[n % 2].set_preferences("app", device.id, turn_off(f"TYPE_{n}")) for n in range(4))
    )
    found = await devices.get("app", device.id)
    assert found is not None
    assert set(found.preferences.types) == {f"TYPE_{n}" for n in range(4)}
    assert await devices.set_preferences("other", device.id, turn_off("X")) is None


async def test_preferences_stay_until_another_user_has_the_device(devices: Devices) -> None:
    off = DevicePreferences(enabled=False)
    of_ana = DeviceDetails(user_id="ana")
    device = await added(devices, make_device(details=of_ana, preferences=off))
    again = await refresh(devices, replace(device, preferences=DevicePreferences()))
    assert again == device
    moved = await devices.update("app", device.id, DeviceDetails(label="x"), NOW)
    assert moved is not None
    assert moved.preferences == off
    moved = await devices.update("app", device.id, DeviceDetails(user_id="bo"), NOW)
    assert moved is not None
    assert moved.preferences == DevicePreferences()
    await devices.set_preferences("app", device.id, lambda _: off)
    taken = await refresh(devices, device)
    assert taken is not None
    assert (taken.details.user_id, taken.preferences) == ("ana", DevicePreferences())
