"""Each rule by itself, the order in which they run, and the reasons that they give."""

import datetime as dt
from typing import Any

import pytest

from clarion.catalog.model import Category, Channel, Dedupe, DedupeMode, Digest, Overflow, Priority
from clarion.events.decide.case import Case, Limit
from clarion.events.decide.rules import DEFAULT_RULE, ORDER, decide
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold, Send, Verdict
from clarion.events.model import EarlierNotification
from clarion.history.model import ReasonCode
from clarion.people.model import Preferences, User, UserStatus
from clarion.push.model import Device, DevicePreferences
from tests.factories import make_device, make_type, make_user
from tests.replacing import replace

NIGHT = int(dt.datetime(2026, 1, 10, 23, 30, tzinfo=dt.UTC).timestamp() * 1000)
MORNING = int(dt.datetime(2026, 1, 11, 7, tzinfo=dt.UTC).timestamp() * 1000)
NOON = int(dt.datetime(2026, 1, 11, 12, tzinfo=dt.UTC).timestamp() * 1000)
NEXT_HOUR = NOON + 3_600_000
EVERYWHERE = frozenset(Channel)
ALWAYS = (True,) * 24
UNREAD, READ = (
    EarlierNotification(notification_id="n1", count=1, is_unread=each) for each in (True, False)
)
DELETED = replace(READ, is_deleted=True)


def make_case(**changes: Any) -> Case:
    """A case at noon that no rule refuses; `of` changes its type."""
    of = changes.pop("of", {})
    values: dict[str, Any] = {
        "now": NOON,
        "type": make_type(**of),
        "priority": Priority.MEDIUM,
        "channels": (Channel.STUB,),
        "templates": EVERYWHERE,
        "available": EVERYWHERE,
        "expires_at": None,
        "user": make_user(timezone="UTC"),
        "addresses": EVERYWHERE,
        "devices": (make_device(),),
        "next_hour_at": NEXT_HOUR,
    }
    return Case(**values | changes)


def decide_one(case: Case) -> Decision:
    (decision,) = decide(case)
    return decision


def on(channel: Channel, **changes: Any) -> Decision:
    return decide_one(make_case(channels=(channel,), **changes))


def preferring(**changes: Any) -> User:
    return make_user(timezone="UTC", preferences=Preferences(**changes))


def setting(**preferences: Any) -> Device:
    """Return a device with preferences."""
    return make_device(preferences=DevicePreferences(**preferences))


def at_noon(hours: int) -> tuple[bool, ...]:
    """Return quiet hours that begin at noon."""
    return tuple(12 <= hour < 12 + hours for hour in range(24))


def test_a_case_that_no_rule_refuses_is_sent() -> None:
    assert decide_one(make_case()) == Decision(Channel.STUB, Send(ReasonCode.ALLOWED), DEFAULT_RULE)


# A rule, the case for which it returns a verdict, and the verdict.
SPEAKING: list[tuple[str, dict[str, Any], Verdict]] = [
    ("user", {"user": None}, Drop(ReasonCode.USER_UNKNOWN)),
    ("user", {"user": make_user(status=UserStatus.INACTIVE)}, Drop(ReasonCode.USER_INACTIVE)),
    ("expiry", {"expires_at": NIGHT}, Drop(ReasonCode.EXPIRED)),
    ("type", {"of": {"is_active": False}}, Drop(ReasonCode.TYPE_INACTIVE)),
    ("type", {"available": frozenset()}, Drop(ReasonCode.CHANNEL_UNAVAILABLE)),
    ("type", {"templates": frozenset()}, Drop(ReasonCode.NO_TEMPLATE)),
    ("type", {"addresses": frozenset()}, Drop(ReasonCode.NO_ADDRESS)),
    (
        "preferences",
        {"user": preferring(categories={Category.TRANSACTIONAL: False})},
        Drop(ReasonCode.CATEGORY_OFF),
    ),
    (
        "preferences",
        {"user": preferring(types={"ORDER_SHIPPED": {Channel.STUB: False}})},
        Drop(ReasonCode.CHANNEL_OFF),
    ),
    (
        "repeat",
        {"of": {"dedupe": Dedupe(window_s=9)}, "earlier": READ},
        Drop(ReasonCode.DUPLICATE),
    ),
    (
        "repeat",
        {"of": {"dedupe": Dedupe(window_s=9, mode=DedupeMode.AGGREGATE)}, "earlier": UNREAD},
        Fold(ReasonCode.FOLDED_INTO_UNREAD, into="n1"),
    ),
    (
        "limit",
        {"limits": (Limit("l", 2, Overflow.DROP, 2),)},
        Drop(ReasonCode.LIMIT_REACHED),
    ),
    (
        "limit",
        {"limits": (Limit("l", 2, Overflow.WAIT, 3),)},
        Hold(ReasonCode.LIMIT_WAITS, NEXT_HOUR),
    ),
    (
        "limit",
        {"limits": (Limit("l", 2, Overflow.DIGEST, 2),)},
        Fold(ReasonCode.LIMIT_JOINS_DIGEST, until=NEXT_HOUR),
    ),
    ("quiet_hours", {"now": NIGHT}, Hold(ReasonCode.QUIET_HOURS, MORNING)),
    (
        "quiet_hours",
        {"user": preferring(quiet_hours=ALWAYS)},
        Hold(ReasonCode.QUIET_HOURS, None),
    ),
    (
        "digest",
        {"of": {"digest": Digest(window_s=60)}},
        Fold(ReasonCode.JOINS_DIGEST, until=NOON + 60_000),
    ),
]


@pytest.mark.parametrize(("rule", "changes", "verdict"), SPEAKING)
def test_a_rule_speaks(rule: str, changes: dict[str, Any], verdict: Verdict) -> None:
    assert decide_one(make_case(**changes)) == Decision(Channel.STUB, verdict, rule)


@pytest.mark.parametrize("first", range(len(SPEAKING)))
def test_of_two_rules_the_first_decides(first: int) -> None:
    order = [name for name, _ in ORDER]
    rule, changes, _ = SPEAKING[first]
    for other, more, _ in SPEAKING:
        if other != rule and not {*changes} & {*more}:
            expected = min(rule, other, key=order.index)
            assert decide_one(make_case(**changes | more)).rule == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at": NOON + 1},
        {"of": {"dedupe": Dedupe(window_s=9)}},
        {"earlier": UNREAD},
        {"of": {"dedupe": Dedupe(window_s=9, mode=DedupeMode.AGGREGATE)}, "earlier": READ},
        {"of": {"dedupe": Dedupe(window_s=9)}, "earlier": DELETED},
        {"limits": (Limit("l", 2, Overflow.DROP, 1),)},
        {"limits": (Limit("l", 2, Overflow.DROP, 1), Limit("m", 9, Overflow.WAIT, 8))},
        {"now": MORNING},
        {"user": preferring(types={"OTHER": {Channel.STUB: False}})},
        {"user": preferring(types={"ORDER_SHIPPED": {Channel.PUSH: False}})},
        {"user": preferring(categories={Category.NEWS: False})},
        {"now": NIGHT, "user": preferring(quiet_hours=(False,) * 24)},
        {"now": NIGHT, "user": make_user(timezone="Asia/Tokyo")},
    ],
)
def test_no_rule_refuses(changes: dict[str, Any]) -> None:
    assert isinstance(decide_one(make_case(**changes)).verdict, Send)


def test_sms_needs_an_opt_in() -> None:
    assert on(Channel.SMS).verdict == Drop(ReasonCode.SMS_NOT_OPTED_IN)
    wanting = preferring(types={"ORDER_SHIPPED": {Channel.SMS: True}})
    assert isinstance(on(Channel.SMS, user=wanting).verdict, Send)


def test_push_needs_a_device_with_notifications_enabled() -> None:
    assert isinstance(on(Channel.PUSH).verdict, Send)
    none = on(Channel.PUSH, devices=())
    assert none == Decision(Channel.PUSH, Drop(ReasonCode.NO_DEVICE), "devices")
    reached = on(Channel.PUSH, devices=(), has_topic_devices=True)
    assert reached == Decision(Channel.PUSH, Drop(ReasonCode.SENT_TO_TOPIC), "devices")
    assert isinstance(on(Channel.PUSH, has_topic_devices=True).verdict, Send)
    off = (setting(enabled=False), setting(types={"ORDER_SHIPPED": False}))
    assert on(Channel.PUSH, devices=off).verdict == Drop(ReasonCode.DEVICES_OFF)
    assert isinstance(on(Channel.PUSH, devices=(*off, make_device())).verdict, Send)
    for of in ({"category": Category.SAFETY}, {"user_can_disable": False}):
        assert isinstance(on(Channel.PUSH, devices=off, of=of).verdict, Send)


def test_the_devices_matter_to_no_other_channel() -> None:
    assert isinstance(on(Channel.EMAIL, devices=()).verdict, Send)
    quiet = (setting(quiet_hours=ALWAYS),)
    assert isinstance(on(Channel.EMAIL, devices=quiet).verdict, Send)


def test_a_push_is_held_while_all_devices_that_want_it_are_quiet() -> None:
    until_two, until_one = (setting(quiet_hours=at_noon(hours)) for hours in (2, 1))
    hold = Hold(ReasonCode.QUIET_HOURS, NEXT_HOUR)
    held = on(Channel.PUSH, devices=(until_two, until_one))
    assert held == Decision(Channel.PUSH, hold, "quiet_hours")
    # A device that does not want it is not waited for, and does not send it on either.
    off = setting(enabled=False)
    assert on(Channel.PUSH, devices=(until_one, off)).verdict == hold
    assert isinstance(on(Channel.PUSH, devices=(until_one, make_device())).verdict, Send)
    always = on(Channel.PUSH, devices=(setting(quiet_hours=ALWAYS),))
    assert always.verdict == Hold(ReasonCode.QUIET_HOURS, None)


def test_urgent_pushes_pass_the_quiet_hours_of_devices() -> None:
    quiet = (setting(quiet_hours=ALWAYS),)
    urgent = on(Channel.PUSH, devices=quiet, priority=Priority.CRITICAL)
    assert urgent.verdict == Send(ReasonCode.MANDATORY)
    bill = on(Channel.PUSH, devices=quiet, of={"user_can_disable": False})
    assert isinstance(bill.verdict, Hold)


def test_the_quiet_hours_of_the_user_hold_a_push_to_all_devices() -> None:
    never = setting(quiet_hours=(False,) * 24)
    held = on(Channel.PUSH, now=NIGHT, devices=(never,))
    assert held.verdict == Hold(ReasonCode.QUIET_HOURS, MORNING)


@pytest.mark.parametrize("channel", [Channel.IN_APP, Channel.WEBHOOK])
def test_channels_that_do_not_interrupt_ignore_quiet_hours(channel: Channel) -> None:
    for changes in ({"now": NIGHT}, {"of": {"digest": Digest(window_s=60)}}):
        assert isinstance(on(channel, **changes).verdict, Send)


TOGGLED_OFF = preferring(
    categories=dict.fromkeys(Category, False), types={"ORDER_SHIPPED": {Channel.STUB: False}}
)


@pytest.mark.parametrize("category", [Category.SAFETY, Category.SECURITY])
def test_safety_and_security_are_mandatory(category: Category) -> None:
    of = {
        "category": category,
        "digest": Digest(window_s=60),
    }
    case = make_case(of=of, now=NIGHT, user=TOGGLED_OFF, limits=(Limit("l", 1, Overflow.DROP, 9),))
    assert decide_one(case).verdict == Send(ReasonCode.MANDATORY)
    assert isinstance(decide_one(replace(case, channels=(Channel.SMS,))).verdict, Send)


def test_critical_events_pass_quiet_hours_but_not_toggles() -> None:
    urgent = make_case(now=NIGHT, priority=Priority.CRITICAL)
    assert decide_one(urgent).verdict == Send(ReasonCode.MANDATORY)
    assert decide_one(replace(urgent, user=TOGGLED_OFF)).verdict == Drop(ReasonCode.CATEGORY_OFF)


def test_types_that_cannot_be_disabled_ignore_toggles_but_not_quiet_hours() -> None:
    bill = {"user_can_disable": False}
    assert isinstance(decide_one(make_case(of=bill, user=TOGGLED_OFF)).verdict, Send)
    assert isinstance(decide_one(make_case(of=bill, now=NIGHT)).verdict, Hold)


def test_there_is_a_decision_for_each_channel_in_order() -> None:
    channels = (Channel.SMS, Channel.IN_APP, Channel.EMAIL)
    decisions = decide(make_case(channels=channels, now=NIGHT))
    assert tuple(each.channel for each in decisions) == channels
    assert [type(each.verdict) for each in decisions] == [Drop, Send, Hold]
