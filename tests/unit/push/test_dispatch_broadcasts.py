"""Broadcasts: live to those who are here, later to the others, and nobody twice."""

import asyncio

import pytest

from clarion.push.dispatch import CHUNK, PUT_OFF_LIMIT
from clarion.push.model import PushPriority, StoragePolicy
from clarion.push.session import MAILBOX_LIMIT
from tests.factories import make_broadcast, make_device
from tests.unit.push.memory import settle
from tests.unit.push.phone import House

HIGH, MIDDLE, LOW = PushPriority


@pytest.fixture
def house() -> House:
    return House()


async def test_a_broadcast_goes_to_those_who_hear_it(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone, other = await house.connect(), await house.connect(make_device())
    message = await house.publish()
    assert (phone.ids, other.ids) == ([message.id], [])
    assert phone.got[0]["topic"] == "news"


async def test_who_is_away_gets_a_broadcast_later(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    missed = [await house.publish() for _ in range(3)]
    phone = await house.connect()
    assert phone.ids == [message.id for message in missed]
    phone.acknowledge()
    await settle()
    assert house.cursor() == 3


async def test_a_device_that_subscribes_while_connected_hears_from_then_on(
    house: House,
) -> None:
    await house.publish()
    phone = await house.connect()
    assert await house.dispatch.subscribe(house.device, "news") is True
    await settle()
    later = await house.publish()
    assert phone.ids == [later.id]


async def test_who_unsubscribed_hears_nothing(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    assert await house.dispatch.unsubscribe(house.device, "news") is True
    assert await house.dispatch.unsubscribe(house.device, "news") is False
    await house.publish()
    assert phone.ids == []


async def test_a_device_says_how_far_it_knows_a_topic(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    messages = [await house.publish() for _ in range(3)]
    phone = await house.connect(known={"news": 2, "other": 9})
    assert phone.ids == [messages[2].id]


async def test_a_cursor_does_not_pass_what_is_not_acknowledged(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    first = await house.connect()
    messages = [await house.publish() for _ in range(3)]
    first.unacknowledged = first.unacknowledged[1:]
    first.acknowledge()
    await settle()
    assert house.cursor() == 0
    house.dispatch.disconnect(first)
    assert (await house.connect()).ids == [message.id for message in messages]


async def test_who_acknowledges_a_broadcast_and_leaves_does_not_get_it_again(
    house: House,
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    first = await house.connect()
    await house.publish()
    first.acknowledge()
    house.dispatch.disconnect(first)
    await settle()
    assert house.cursor() == 1
    assert (await house.connect()).ids == []


async def test_a_broadcast_that_is_replaced_before_it_goes_out_holds_no_cursor(
    house: House,
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    phone.session.is_paused = True
    for _ in range(3):
        last = await house.publish(collapse_id="c")
    phone.carry_out(phone.session.resume(house.clock.now()))
    phone.acknowledge()
    await settle()
    assert phone.ids == [last.id]
    assert house.cursor() == 3


async def test_a_broadcast_that_expires_before_it_goes_out_holds_no_cursor(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    phone.session.is_paused = True
    await house.publish(expires_at=house.clock.now() + 5)
    house.clock.advance(5)
    phone.carry_out(phone.session.resume(house.clock.now()))
    await settle()
    assert (phone.ids, house.cursor()) == ([], 1)


async def test_a_broadcast_that_is_not_kept_goes_to_those_who_are_here(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    once = await house.publish(is_stored=False)
    kept = await house.publish()
    assert phone.ids == [once.id, kept.id]
    phone.acknowledge()
    await settle()
    assert house.cursor() == 2
    house.dispatch.disconnect(phone)
    await house.publish(is_stored=False)
    assert (await house.connect()).ids == []


@pytest.mark.parametrize("priority", [MIDDLE, LOW])
async def test_a_broadcast_that_can_wait_does_not_wake_a_device_in_the_background(
    house: House, priority: PushPriority
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    phone.say(type="state", foreground=False)
    later = await house.publish(priority=priority)
    urgent = await house.publish()
    assert phone.ids == [urgent.id]
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == [urgent.id, later.id]


async def test_what_another_node_published_before_comes_first(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    elsewhere = make_broadcast()
    await house.broadcasts.publish(elsewhere, StoragePolicy.ALL)
    here = await house.publish()
    assert phone.ids == [elsewhere.id, here.id]


async def test_what_is_put_off_when_it_is_read_comes_in_the_window(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    low = make_broadcast(priority=LOW)
    await house.broadcasts.publish(low, StoragePolicy.ALL)
    here = await house.publish()
    assert phone.ids == [here.id]
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.ids == [here.id, low.id]


async def test_what_was_put_off_comes_again_to_a_device_that_left_before_its_window(
    house: House,
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    first = await house.connect()
    low, urgent = await house.publish(priority=LOW), await house.publish()
    assert first.ids == [urgent.id]
    first.acknowledge()
    await settle()
    assert house.cursor() == 0
    house.dispatch.disconnect(first)
    assert sorted((await house.connect()).ids) == sorted([low.id, urgent.id])


async def test_what_expired_while_it_was_put_off_is_not_asked_for_again(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    await house.publish(priority=LOW, expires_at=house.clock.now() + 5)
    house.clock.advance(5)
    phone.carry_out(phone.session.open_window())
    await settle()
    assert phone.topics
    assert phone.topics["news"].put_off == {}
    assert not house.dispatch._tasks


async def test_a_broadcast_while_its_topic_is_read_is_not_missed(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    house.gates.are_open = False
    phone = house.start_connecting()
    while not (phone.is_ready and phone.topics and not phone.topics["news"].is_behind):
        await house.gates.let_pass()
    await house.gates.let_pass()  # the topic was read, and nobody knows yet
    publishing = asyncio.ensure_future(house.publish())
    for _ in range(2):
        await house.gates.let_pass(1)
    await house.gates.let_all_pass()
    assert phone.ids == [(await publishing).id]


async def test_what_is_put_off_while_its_topic_is_read_is_not_forgotten(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    await house.publish(priority=LOW)
    house.gates.are_open = False
    phone.carry_out(phone.session.open_window())
    for _ in range(3):
        await house.gates.let_pass()  # the topic was read, and nobody knows yet
    publishing = asyncio.ensure_future(house.publish(priority=LOW))
    for _ in range(2):
        await house.gates.let_pass(1)
    await house.gates.let_all_pass()
    assert phone.ids[1:] == [(await publishing).id]


async def test_no_more_than_a_limit_is_put_off(house: House) -> None:
    await house.dispatch.subscribe(house.device, "news")
    phone = await house.connect()
    for _ in range(PUT_OFF_LIMIT):
        await house.publish(priority=LOW)
    assert phone.ids == []
    await house.publish(priority=LOW)
    while phone.unacknowledged:
        phone.acknowledge()
        await settle()
    assert phone.topics
    assert len(phone.ids) + len(phone.topics["news"].put_off) == PUT_OFF_LIMIT + 1
    assert len(phone.ids) > 0


async def test_a_device_that_hears_many_topics_gets_them_in_chunks(house: House) -> None:
    topics = [f"{n}" for n in range(40)]
    for topic in topics:
        await house.dispatch.subscribe(house.device, topic)
        for _ in range(10):
            await house.publish(topic)
    phone = await house.connect()
    assert len(phone.session._mailbox or ()) <= MAILBOX_LIMIT + CHUNK
    while phone.unacknowledged:
        phone.acknowledge(50)
        await settle()
    assert len(phone.ids) == 400
    assert [house.cursor(topic) for topic in topics] == [10] * 40


async def test_an_unsubscription_while_the_device_connects_is_not_forgotten(
    house: House,
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    house.gates.are_open = False
    phone = house.start_connecting()
    await house.gates.let_pass()  # it has read the subscriptions, and does not know them yet
    leaving = asyncio.ensure_future(house.dispatch.unsubscribe(house.device, "news"))
    for _ in range(2):
        await house.gates.let_pass(1)
    assert await leaving is True
    await house.gates.let_all_pass()
    house.gates.are_open = True
    await house.publish()
    assert phone.ids == []


async def test_who_leaves_a_topic_and_comes_back_while_connecting_hears_from_then_on(
    house: House,
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    await house.publish()
    house.gates.are_open = False
    phone = house.start_connecting()
    await house.gates.let_pass()  # it has read the subscriptions, and does not know them yet
    for change in (house.dispatch.unsubscribe, house.dispatch.subscribe):
        changing = asyncio.ensure_future(change(house.device, "news"))
        for _ in range(2):
            await house.gates.let_pass(1)
        assert await changing is True
    await house.gates.let_all_pass()
    house.gates.are_open = True
    assert phone.ids == []
    later = await house.publish()
    assert phone.ids == [later.id]


@pytest.mark.parametrize("is_closed", [True, False])
async def test_what_a_device_left_while_connecting_it_may_hear_next_time(
    house: House, *, is_closed: bool
) -> None:
    await house.dispatch.subscribe(house.device, "news")
    house.gates.are_open = False
    phone = house.start_connecting()
    await settle()
    leaving = asyncio.ensure_future(house.dispatch.unsubscribe(house.device, "news"))
    for _ in range(2):
        await house.gates.let_pass(1)
    assert await leaving is True
    if is_closed:
        house.dispatch.disconnect(phone)
    await house.gates.let_all_pass()
    house.gates.are_open = True
    await house.broadcasts.subscribe("app", house.device.id, "news", house.clock.now())  # elsewhere
    again = await house.connect()
    message = await house.publish()
    assert again.ids == [message.id]
