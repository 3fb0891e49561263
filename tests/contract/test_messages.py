"""The `Messages` port."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from clarion.push.messages import History, Messages
from clarion.push.model import Message, MessageReason, MessageRecord, MessageStatus, PushPriority
from clarion.push.sql.messages import SqlMessages
from clarion.store.engine import Engine
from tests.factories import DAY, NOW, make_message, new_app_id

State = tuple[MessageStatus, MessageReason | None]
QUEUED: State = (MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)
PENDING: State = (MessageStatus.PENDING, None)
DELIVERED: State = (MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED)
COLLAPSED: State = (MessageStatus.EXPIRED, MessageReason.COLLAPSED)
OVERFLOW: State = (MessageStatus.EXPIRED, MessageReason.OVERFLOW)
FAILED: State = (MessageStatus.FAILED, MessageReason.UNREGISTERED)


async def stored(messages: Messages, *several: Message, state: State = QUEUED) -> list[Message]:
    added = await asyncio.gather(*(messages.add(message, *state) for message in several))
    assert all(added)
    return list(several)


async def waiting(messages: Messages, device_id: str = "device", now: int = NOW) -> list[Message]:
    return list(await messages.waiting(device_id, now=now, limit=10_000))


async def record_of(history: History, message: Message) -> MessageRecord:
    record = await history.get("app", message.device_id, message.id)
    assert record is not None
    return record


async def states(history: History, several: Sequence[Message]) -> list[State]:
    records = [await record_of(history, message) for message in several]
    return [(record.status, record.reason) for record in records]


@pytest.mark.parametrize("priority", PushPriority)
@pytest.mark.parametrize("state", [PENDING, QUEUED])
async def test_a_message_comes_back_as_stored(
    messages: Messages, priority: PushPriority, state: State
) -> None:
    message = make_message(priority=priority, payload=b'{"\x00\xff": 1}', collapse_id="ä")
    message = message._replace(trace=f"00-{'a' * 32}-{'1' * 16}-01 vendor=1")
    assert await messages.add(message, *state) is True
    assert await waiting(messages) == [message]


async def test_the_devices_for_which_messages_wait_are_found(messages: Messages) -> None:
    await stored(messages, *(make_message(each) for each in ("d1", "d1", "d2", "d5")))
    await stored(messages, make_message("d3", expires_at=NOW), make_message("d4", is_stored=False))
    done = make_message("d6")
    await stored(messages, done)
    await messages.acknowledge([("d6", done.id)], NOW)
    asked = ["d1", "d2", "d3", "d4", "d6", "none"]
    assert await messages.find_waiting(asked, NOW) == {"d1", "d2"}


async def test_what_was_stored_lately_is_found_for_several_apps(messages: Messages) -> None:
    """In the order of sequences, and only what waits and is stored."""
    apps = [new_app_id() for _ in range(3)]
    for number, app_id in enumerate((*apps, *apps, apps[0])):
        message = make_message(f"d{number}", app_id=app_id, sequence=100 - number % 6)
        await stored(messages, message)
    gone = {"app_id": apps[0], "sequence": 101}
    await stored(messages, make_message("x", **gone, expires_at=NOW))
    await stored(messages, make_message("x", **gone, is_stored=False))
    await stored(messages, make_message("x", **gone), state=DELIVERED)
    find = partial(messages.find_recent, apps[:2], now=NOW)
    assert await find(after=0, limit=9) == [
        (96, "d4"), (97, "d3"), (99, "d1"), (100, "d0"), (100, "d6")
    ]  # fmt: skip
    assert await find(after=97, limit=2) == [(99, "d1"), (100, "d0")]
    assert await find(after=100, limit=9) == []


@pytest.mark.parametrize("ms", [0, 1, DAY - 1])
async def test_the_same_id_within_24_hours_is_not_stored_again(messages: Messages, ms: int) -> None:
    (message,) = await stored(messages, make_message(expires_at=NOW + 9 * DAY))
    again = make_message(id=message.id, created_at=NOW + ms, payload=b"{}")
    assert await messages.add(again, *QUEUED) is False
    assert await waiting(messages) == [message]


@pytest.mark.parametrize("state", [QUEUED, DELIVERED])
async def test_the_same_id_after_24_hours_is_a_new_message(
    messages: Messages, history: History, state: State
) -> None:
    (message,) = await stored(messages, make_message(), state=state)
    later = NOW + DAY
    again = make_message(id=message.id, created_at=later, expires_at=later + 1, collapse_id="c")
    assert await messages.add(again, *PENDING) is True
    assert await waiting(messages, now=later) == [again]
    record = await record_of(history, again)
    assert (record.created_at, record.updated_at, record.status) == (later, later, PENDING[0])


async def test_a_repeat_of_what_was_delivered_is_not_stored_either(messages: Messages) -> None:
    (message,) = await stored(messages, make_message())
    await messages.acknowledge([(message.device_id, message.id)], NOW)
    assert await messages.add(message, *QUEUED) is False
    assert await waiting(messages) == []


async def test_devices_may_have_messages_with_the_same_id(messages: Messages) -> None:
    both = await stored(messages, make_message("a", id="same"), make_message("b", id="same"))
    assert await waiting(messages, "a") + await waiting(messages, "b") == both


async def test_of_one_id_many_times_at_once_one_is_stored(messages: Messages) -> None:
    many = [make_message(id="same", payload=b'{"n":%d}' % n) for n in range(20)]
    added = await asyncio.gather(*(messages.add(message, *QUEUED) for message in many))
    assert added.count(True) == 1
    assert await waiting(messages) == [many[added.index(True)]]


async def test_of_one_id_at_two_nodes_at_once_one_is_stored(
    messages: Messages, other_node: Engine
) -> None:
    nodes = (messages, SqlMessages(other_node))
    for n in range(10):
        both = [make_message(id=f"{n}") for _ in nodes]
        adding = (nodes[i].add(message, *QUEUED) for i, message in enumerate(both))
        assert sorted(await asyncio.gather(*adding)) == [False, True]
    assert len(await waiting(messages)) == 10


async def test_a_newer_message_replaces_the_older_with_the_same_collapse_id(
    messages: Messages, history: History
) -> None:
    queued, pending = make_message(collapse_id="c"), make_message(collapse_id="c")
    await stored(messages, queued)
    await stored(messages, pending, state=PENDING)
    (newest,) = await stored(messages, make_message(collapse_id="c", created_at=NOW + 7))
    assert await waiting(messages) == [newest]
    assert await states(history, [queued, pending]) == [COLLAPSED, COLLAPSED]
    assert (await record_of(history, pending)).updated_at == NOW + 7


@pytest.mark.parametrize("state", [QUEUED, PENDING])
async def test_an_older_message_that_is_stored_later_is_replaced_too(
    messages: Messages, history: History, other_node: Engine, state: State
) -> None:
    older, newer = make_message(collapse_id="c"), make_message(collapse_id="c")
    await stored(messages, newer, state=state)
    await stored(SqlMessages(other_node), older)
    assert await waiting(messages) == [newer]
    assert await states(history, [older, newer]) == [COLLAPSED, state]


async def test_only_a_newer_message_that_waits_replaces_an_older_one(messages: Messages) -> None:
    older, done, other = (make_message(collapse_id="c") for _ in range(3))
    await stored(messages, done, state=DELIVERED)
    await stored(messages, other._replace(collapse_id="other"), other._replace(device_id="other"))
    await stored(messages, older)
    assert older in await waiting(messages)


async def test_only_the_same_collapse_id_of_the_same_device_is_replaced(
    messages: Messages,
) -> None:
    mine = [make_message(collapse_id=c) for c in (None, "other", "c")]
    others = [make_message("other", collapse_id="c")]
    await stored(messages, *mine, *others)
    (newest,) = await stored(messages, make_message(collapse_id="c"))
    assert await waiting(messages) == [*mine[:2], newest]
    assert await waiting(messages, "other") == others


async def test_what_is_finished_is_not_collapsed(messages: Messages, history: History) -> None:
    (done,) = await stored(messages, make_message(collapse_id="c"))
    await messages.acknowledge([("device", done.id)], NOW)
    await stored(messages, make_message(collapse_id="c"))
    assert await states(history, [done]) == [DELIVERED]


async def test_a_repeat_collapses_nothing(messages: Messages) -> None:
    (first,) = await stored(messages, make_message(collapse_id="c"))
    (second,) = await stored(messages, make_message(collapse_id="c"))
    assert await messages.add(make_message(id=first.id, collapse_id="c"), *QUEUED) is False
    assert await waiting(messages) == [second]


async def test_of_many_with_one_collapse_id_in_one_batch_the_newest_waits(
    messages: Messages, history: History, engine: Engine
) -> None:
    batches = engine.commit.batches
    *older, newest = await stored(messages, *(make_message(collapse_id="c") for _ in range(20)))
    assert engine.commit.batches == batches + 1
    assert await waiting(messages) == [newest]
    assert set(await states(history, older)) == {COLLAPSED}


@pytest.mark.parametrize("order", [1, -1])
async def test_of_two_that_were_accepted_at_the_same_moment_one_waits(
    messages: Messages, order: int
) -> None:
    both = [make_message(id=name, sequence=7, collapse_id="c") for name in "ab"]
    await stored(messages, *both[::order])
    assert await waiting(messages) == both[1:]


async def test_of_many_with_one_collapse_id_at_two_nodes_the_newest_waits(
    messages: Messages, other_node: Engine
) -> None:
    nodes = (messages, SqlMessages(other_node))
    for n in range(10):
        many = [make_message(f"{n}", collapse_id="c") for _ in range(6)]
        adding = (nodes[i % 2].add(message, *QUEUED) for i, message in enumerate(many))
        await asyncio.gather(*adding)
        assert many[-1] in await waiting(messages, f"{n}")
        (last,) = await stored(messages, make_message(f"{n}", collapse_id="c"))
        assert await waiting(messages, f"{n}") == [last]


async def test_waiting_messages_come_by_priority_then_oldest_first(messages: Messages) -> None:
    made = [make_message(priority=p) for p in (1, 10, 5, 10, 1, 5) for p in (PushPriority(p),)]
    await stored(messages, *reversed(made))
    assert await waiting(messages) == [made[i] for i in (1, 3, 2, 5, 0, 4)]


async def test_only_as_many_are_read_as_asked_for(messages: Messages) -> None:
    made = await stored(messages, *(make_message() for _ in range(5)))
    assert await messages.waiting("device", now=NOW, limit=2) == tuple(made[:2])


async def test_what_is_less_important_than_asked_for_is_left_out(messages: Messages) -> None:
    made = await stored(messages, *(make_message(priority=p) for p in PushPriority))
    for count, least in enumerate(PushPriority, start=1):
        found = await messages.waiting("device", now=NOW, limit=9, least=least)
        assert found == tuple(made[:count])


async def test_what_is_to_be_skipped_does_not_count(messages: Messages) -> None:
    made = await stored(messages, *(make_message() for _ in range(6)))
    skip = {made[0].id, made[2].id, "unknown"}
    found = await messages.waiting("device", now=NOW, limit=3, skip=skip)
    assert found == (made[1], made[3], made[4])


async def test_what_has_expired_is_not_read(messages: Messages) -> None:
    (message,) = await stored(messages, make_message(expires_at=NOW + 5))
    assert await waiting(messages, now=NOW + 4) == [message]
    assert await waiting(messages, now=NOW + 5) == []


async def test_what_is_not_to_be_kept_is_not_read(messages: Messages) -> None:
    await stored(messages, make_message(is_stored=False), state=PENDING)
    assert await waiting(messages) == []
    assert await messages.count_waiting("device", now=NOW, limit=9) == 0


@pytest.mark.parametrize("state", [DELIVERED, FAILED, OVERFLOW])
async def test_what_is_finished_is_not_read(messages: Messages, state: State) -> None:
    await stored(messages, make_message(), state=state)
    assert await waiting(messages) == []
    assert await messages.count_waiting("device", now=NOW, limit=9) == 0


async def test_what_waits_is_counted_up_to_a_limit(messages: Messages) -> None:
    await stored(messages, *(make_message() for _ in range(5)), make_message("other"))
    assert await messages.count_waiting("device", now=NOW, limit=9) == 5
    assert await messages.count_waiting("device", now=NOW, limit=3) == 3
    assert await messages.count_waiting("nobody", now=NOW, limit=3) == 0


async def test_what_has_expired_is_not_counted(messages: Messages) -> None:
    await stored(messages, make_message(expires_at=NOW + 5), make_message())
    assert await messages.count_waiting("device", now=NOW + 4, limit=9) == 2
    assert await messages.count_waiting("device", now=NOW + 5, limit=9) == 1


@pytest.mark.parametrize("state", [PENDING, QUEUED])
async def test_an_acknowledged_message_is_delivered(
    messages: Messages, history: History, state: State
) -> None:
    (message,) = await stored(messages, make_message(), state=state)
    await messages.acknowledge([("device", message.id)], NOW + 3)
    assert await waiting(messages) == []
    record = await record_of(history, message)
    assert (record.status, record.reason, record.updated_at) == (*DELIVERED, NOW + 3)


async def test_many_devices_acknowledge_at_once(messages: Messages, history: History) -> None:
    many = await stored(messages, *(make_message(f"{n % 7}") for n in range(50)))
    await messages.acknowledge([(m.device_id, m.id) for m in many], NOW)
    assert set(await states(history, many)) == {DELIVERED}


async def test_many_acknowledgements_are_units_of_a_few(messages: Messages, engine: Engine) -> None:
    """A commit cannot be shorter than one unit: others would wait for all of them."""
    before = engine.commit.units
    await messages.acknowledge([(f"device-{n}", "message") for n in range(1_600)], NOW)
    assert engine.commit.units - before >= 3


async def test_a_device_acknowledges_its_own_messages_alone(messages: Messages) -> None:
    (message,) = await stored(messages, make_message())
    await messages.acknowledge([("other", message.id), ("device", "unknown")], NOW)
    await messages.acknowledge([], NOW)
    assert await waiting(messages) == [message]


@pytest.mark.parametrize("state", [FAILED, OVERFLOW, COLLAPSED, DELIVERED])
async def test_acknowledging_what_does_not_wait_changes_nothing(
    messages: Messages, history: History, state: State
) -> None:
    (message,) = await stored(messages, make_message(), state=state)
    await messages.acknowledge([("device", message.id)], NOW + 9)
    record = await record_of(history, message)
    assert (record.status, record.reason, record.updated_at) == (*state, NOW)


async def test_only_a_message_that_waits_can_be_failed(
    messages: Messages, history: History
) -> None:
    made = await stored(messages, *(make_message() for _ in range(3)))
    await messages.acknowledge([("device", made[1].id)], NOW)
    for message_id in (made[0].id, made[1].id, "unknown"):
        await messages.fail("device", message_id, NOW + 2)
    await messages.fail("other", made[2].id, NOW)
    assert await states(history, made) == [FAILED, DELIVERED, QUEUED]
    assert (await record_of(history, made[0])).updated_at == NOW + 2


async def test_only_a_message_that_waits_can_be_cancelled(
    messages: Messages, history: History
) -> None:
    made = await stored(messages, *(make_message() for _ in range(3)))
    await messages.acknowledge([("device", made[1].id)], NOW)
    ids = (made[0].id, made[0].id, made[1].id, "unknown")
    assert [await messages.cancel("device", id_, NOW + 2) for id_ in ids] == [True] + [False] * 3
    assert not await messages.cancel("other", made[2].id, NOW)
    cancelled = (MessageStatus.EXPIRED, MessageReason.CANCELLED)
    assert await states(history, made) == [cancelled, DELIVERED, QUEUED]


async def test_trimming_expires_the_least_important_then_the_oldest(
    messages: Messages, history: History
) -> None:
    made = [make_message(priority=p) for p in (1, 10, 5, 10, 1) for p in (PushPriority(p),)]
    await stored(messages, *made)
    assert await messages.trim("device", 3, NOW + 1) == 2
    assert await waiting(messages) == [made[1], made[3], made[2]]
    assert await messages.trim("device", 1, NOW + 2) == 2
    assert await waiting(messages) == [made[3]]
    assert await states(history, made) == [OVERFLOW, OVERFLOW, OVERFLOW, QUEUED, OVERFLOW]
    assert (await record_of(history, made[0])).updated_at == NOW + 1


async def test_within_the_limit_nothing_is_trimmed(messages: Messages) -> None:
    made = await stored(messages, make_message(), make_message("other"), make_message("other"))
    assert await messages.trim("device", 1, NOW) == 0
    assert await messages.trim("nobody", 0, NOW) == 0
    assert await waiting(messages) == made[:1]


async def test_what_is_finished_or_not_kept_is_not_trimmed(
    messages: Messages, history: History
) -> None:
    (done,) = await stored(messages, make_message(), state=DELIVERED)
    (once,) = await stored(messages, make_message(is_stored=False), state=PENDING)
    assert await messages.trim("device", 0, NOW) == 0
    assert await states(history, [done, once]) == [DELIVERED, PENDING]


async def test_any_number_is_trimmed(messages: Messages) -> None:
    made = await stored(messages, *(make_message() for _ in range(2_503)))
    assert await messages.trim("device", 2, NOW) == 2_501
    assert await waiting(messages) == made[-2:]


async def test_messages_expire_when_their_time_has_passed(
    messages: Messages, history: History
) -> None:
    ends = [make_message(f"{n}", expires_at=NOW + n) for n in range(4)]
    await stored(messages, *ends[:2])
    await stored(messages, *ends[2:], state=PENDING)
    assert await messages.expire(NOW + 2, limit=9) == 3
    expired = (MessageStatus.EXPIRED, MessageReason.TTL_PASSED)
    assert await states(history, ends) == [expired] * 3 + [PENDING]
    assert (await record_of(history, ends[0])).updated_at == NOW + 2
    assert await messages.expire(NOW + 2, limit=9) == 0


async def test_one_attempt_that_was_not_acknowledged_says_so(
    messages: Messages, history: History
) -> None:
    (once,) = await stored(messages, make_message(is_stored=False), state=PENDING)
    assert await messages.expire(once.expires_at, limit=9) == 1
    assert await states(history, [once]) == [(MessageStatus.EXPIRED, MessageReason.NOT_STORED)]


async def test_no_more_expire_than_asked_for(messages: Messages) -> None:
    await stored(messages, *(make_message(expires_at=NOW) for _ in range(5)))
    assert [await messages.expire(NOW, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_is_finished_does_not_expire(messages: Messages, history: History) -> None:
    (done,) = await stored(messages, make_message(expires_at=NOW), state=DELIVERED)
    assert await messages.expire(NOW + DAY, limit=9) == 0
    assert await states(history, [done]) == [DELIVERED]


async def test_acknowledging_expiring_and_trimming_at_once_finish_each_message_once(
    messages: Messages, history: History, other_node: Engine
) -> None:
    elsewhere = SqlMessages(other_node)
    for n in range(5):
        many = await stored(messages, *(make_message(f"{n}", expires_at=NOW) for _ in range(12)))
        expired, trimmed, _ = await asyncio.gather(
            elsewhere.expire(NOW, limit=99),
            messages.trim(f"{n}", 2, NOW),
            messages.acknowledge([(m.device_id, m.id) for m in many], NOW),
        )
        ends = await states(history, many)
        assert ends.count(DELIVERED) == len(many) - expired - trimmed
        assert ends.count(OVERFLOW) == trimmed


async def test_a_message_is_there_for_another_node_when_it_is_stored(
    messages: Messages, other_node: Engine
) -> None:
    made = await stored(messages, *(make_message() for _ in range(3)))
    assert await waiting(SqlMessages(other_node)) == made
