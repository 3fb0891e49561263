"""The rules, in the order in which they are asked. The first that has an answer wins.

Each is a plain function of the case and a channel; None means: nothing to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.catalog.model import (
    INTERRUPTING,
    MANDATORY_CATEGORIES,
    Channel,
    DedupeMode,
    Overflow,
    Priority,
)
from clarion.events.decide.digests import find_due
from clarion.events.decide.quiet_hours import find_end
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold, Send
from clarion.events.model import ReasonCode
from clarion.people.model import DEFAULT_QUIET_HOURS

if TYPE_CHECKING:
    from collections.abc import Callable

    from clarion.events.decide.case import Case, Person
    from clarion.events.decide.verdicts import Verdict

    Rule = Callable[[Case, Channel], Verdict | None]


def check_person(case: Case, _channel: Channel) -> Verdict | None:
    """Is there such a person, and are they active?"""
    if case.person is None:
        return Drop(ReasonCode.USER_UNKNOWN)
    return None if case.person.is_active else Drop(ReasonCode.USER_INACTIVE)


def check_expiry(case: Case, _channel: Channel) -> Verdict | None:
    """Does it still matter?"""
    is_over = case.expires_at is not None and case.expires_at <= case.now
    return Drop(ReasonCode.EXPIRED) if is_over else None


def check_type(case: Case, channel: Channel) -> Verdict | None:
    """Is the type in use, with words for this channel and an address to send them to?"""
    if not case.type.is_active:
        return Drop(ReasonCode.TYPE_INACTIVE)
    if channel not in case.available:
        return Drop(ReasonCode.CHANNEL_UNAVAILABLE)
    if channel not in case.templates:
        return Drop(ReasonCode.NO_TEMPLATE)
    return None if channel in _person(case).addresses else Drop(ReasonCode.NO_ADDRESS)


def check_preferences(case: Case, channel: Channel) -> Verdict | None:
    """Does the person want it there? Some things are heard whatever the toggles say."""
    if is_mandatory(case):
        return None
    preferences = _person(case).preferences
    if not preferences.categories.get(case.type.category, True):
        return Drop(ReasonCode.CATEGORY_OFF)
    chosen = preferences.types.get(case.type.type, {}).get(channel)
    if chosen is None and channel is Channel.SMS:
        return Drop(ReasonCode.SMS_NOT_OPTED_IN)
    return Drop(ReasonCode.CHANNEL_OFF) if chosen is False else None


def check_devices(case: Case, channel: Channel) -> Verdict | None:
    """Is there a device that takes it?"""
    if channel is not Channel.PUSH:
        return None
    person = _person(case)
    if not person.devices:
        return Drop(ReasonCode.NO_DEVICE)
    return None if person.devices_on or is_mandatory(case) else Drop(ReasonCode.DEVICES_OFF)


def check_repeat(case: Case, _channel: Channel) -> Verdict | None:
    """Was the same said a short while ago?"""
    if case.type.dedupe is None or case.earlier is None:
        return None
    if case.type.dedupe.mode is DedupeMode.DROP:
        return Drop(ReasonCode.DUPLICATE)
    # What was read is over; what is unread takes the newcomer in.
    if not case.earlier.is_unread:
        return None
    return Fold(ReasonCode.FOLDED_INTO_UNREAD, into=case.earlier.notification_id)


def check_limit(case: Case, _channel: Channel) -> Verdict | None:
    """Has the person had enough for the hour: of this type, of its category, or in all?"""
    reached = next((limit for limit in case.limits if limit.used >= limit.per_hour), None)
    if reached is None or passes_quiet_hours(case):
        return None
    match reached.overflow:
        case Overflow.DROP:
            return Drop(ReasonCode.LIMIT_REACHED)
        case Overflow.WAIT:
            return Hold(ReasonCode.LIMIT_WAITS, case.next_hour_at)
        case Overflow.DIGEST:
            return Fold(ReasonCode.LIMIT_JOINS_DIGEST, until=case.next_hour_at)


def check_quiet_hours(case: Case, channel: Channel) -> Verdict | None:
    """Does the person sleep? Then what interrupts waits until morning; it is never dropped."""
    if channel not in INTERRUPTING or passes_quiet_hours(case):
        return None
    person = _person(case)
    flags = person.preferences.quiet_hours or DEFAULT_QUIET_HOURS
    end = find_end(case.now, flags, person.timezone)
    return None if end == case.now else Hold(ReasonCode.QUIET_HOURS, end)


def check_digest(case: Case, channel: Channel) -> Verdict | None:
    """Is it collected, to be said once with others?"""
    if case.type.digest is None or channel not in INTERRUPTING or passes_quiet_hours(case):
        return None
    # At the latest: the digest that it joins is due when its first part is.
    due_at = find_due(case.type.digest, case.now, _person(case).timezone)
    return Fold(ReasonCode.JOINS_DIGEST, until=due_at)


ORDER: tuple[tuple[str, Rule], ...] = (
    ("person", check_person),
    ("expiry", check_expiry),
    ("type", check_type),
    ("preferences", check_preferences),
    ("devices", check_devices),
    ("repeat", check_repeat),
    ("limit", check_limit),
    ("quiet_hours", check_quiet_hours),
    ("digest", check_digest),
)
DEFAULT_RULE = "default"


def decide(case: Case) -> tuple[Decision, ...]:
    """Return a decision for each channel that was asked for, in that order."""
    return tuple(_decide_channel(case, channel) for channel in case.channels)


def _decide_channel(case: Case, channel: Channel) -> Decision:
    for name, rule in ORDER:
        verdict = rule(case, channel)
        if verdict is not None:
            return Decision(channel, verdict, name)
    reason = ReasonCode.MANDATORY if passes_quiet_hours(case) else ReasonCode.ALLOWED
    return Decision(channel, Send(reason), DEFAULT_RULE)


def is_mandatory(case: Case) -> bool:
    """Whether toggles do not count: safety, security, and what a user cannot disable."""
    return case.type.category in MANDATORY_CATEGORIES or not case.type.user_can_disable


def passes_quiet_hours(case: Case) -> bool:
    """Whether it is heard at any hour: safety, security, and what is critical."""
    return case.type.category in MANDATORY_CATEGORIES or case.priority is Priority.CRITICAL


def _person(case: Case) -> Person:
    # `check_person` is asked first, so there is one.
    assert case.person is not None  # noqa: S101
    return case.person
