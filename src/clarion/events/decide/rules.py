"""The rules, in the order in which they run. The first that returns a verdict decides.

Each is a plain function of the case and a channel; None leaves the decision to the next rule.
"""

from __future__ import annotations

from collections.abc import Callable

from clarion.catalog.model import (
    INTERRUPTING,
    MANDATORY_CATEGORIES,
    Channel,
    DedupeMode,
    Overflow,
    Priority,
)
from clarion.events.decide.case import Case
from clarion.events.decide.devices import ChosenDevices, choose_devices
from clarion.events.decide.digests import find_due
from clarion.events.decide.verdicts import Decision, Drop, Fold, Hold, Send, Verdict
from clarion.history.model import ReasonCode
from clarion.people.model import DEFAULT_QUIET_HOURS, UserStatus
from clarion.people.model.quiet_hours import find_end

Rule = Callable[[Case, Channel], Verdict | None]


def check_user(case: Case, _channel: Channel) -> Verdict | None:
    """Does the user exist, and are they active?"""
    if case.user is None:
        return Drop(ReasonCode.USER_UNKNOWN)
    is_active = case.user.status is UserStatus.ACTIVE
    return None if is_active else Drop(ReasonCode.USER_INACTIVE)


def check_expiry(case: Case, _channel: Channel) -> Verdict | None:
    """Has the event expired?"""
    is_expired = case.expires_at is not None and case.expires_at <= case.now
    return Drop(ReasonCode.EXPIRED) if is_expired else None


def check_read(case: Case, channel: Channel) -> Verdict | None:
    """Has the user read it while it waited? Mandatory types are sent all the same."""
    if not case.is_read or channel not in INTERRUPTING:
        return None
    is_sent = case.type.send_when_read or is_mandatory(case)
    return None if is_sent else Drop(ReasonCode.ALREADY_READ)


def check_type(case: Case, channel: Channel) -> Verdict | None:
    """Is the type active, with a template for this channel and an address to send to?"""
    if not case.type.is_active:
        return Drop(ReasonCode.TYPE_INACTIVE)
    if channel not in case.available:
        return Drop(ReasonCode.CHANNEL_UNAVAILABLE)
    if channel not in case.templates:
        return Drop(ReasonCode.NO_TEMPLATE)
    return None if channel in case.addresses else Drop(ReasonCode.NO_ADDRESS)


def check_preferences(case: Case, channel: Channel) -> Verdict | None:
    """Does the user want it on this channel? Mandatory types ignore the toggles."""
    if is_mandatory(case):
        return None
    preferences = case.recipient.preferences
    if not preferences.categories.get(case.type.category, True):
        return Drop(ReasonCode.CATEGORY_OFF)
    chosen = preferences.types.get(case.type.type, {}).get(channel)
    if chosen is None and channel is Channel.SMS:
        return Drop(ReasonCode.SMS_NOT_OPTED_IN)
    return Drop(ReasonCode.CHANNEL_OFF) if chosen is False else None


def check_devices(case: Case, channel: Channel) -> Verdict | None:
    """Does the user have a device that wants it?"""
    if channel is not Channel.PUSH:
        return None
    if not case.devices:
        is_sent = case.has_topic_devices
        return Drop(ReasonCode.SENT_TO_TOPIC if is_sent else ReasonCode.NO_DEVICE)
    return None if any(choose_push_devices(case)) else Drop(ReasonCode.DEVICES_OFF)


def check_repeat(case: Case, _channel: Channel) -> Verdict | None:
    """Does an earlier notification hold the same dedupe key?"""
    if case.type.dedupe is None or case.earlier is None or case.earlier.is_deleted:
        return None
    if case.type.dedupe.mode is DedupeMode.DROP:
        return Drop(ReasonCode.DUPLICATE)
    # Only an unread one can take in another; after a read one, a new notification begins.
    if not case.earlier.is_unread:
        return None
    return Fold(ReasonCode.FOLDED_INTO_UNREAD, into=case.earlier.notification_id)


def check_limit(case: Case, _channel: Channel) -> Verdict | None:
    """Is an hourly limit reached: of the type, of its category, or of the user?"""
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
    """Is it a quiet hour? Then channels that interrupt wait until its end.

    A push also waits while it is quiet on all devices that want it.
    """
    if channel not in INTERRUPTING or passes_quiet_hours(case):
        return None
    user = case.recipient
    hours = user.preferences.quiet_hours or DEFAULT_QUIET_HOURS
    end = find_end(case.now, hours, user.timezone)
    if end == case.now and channel is Channel.PUSH:
        chosen = choose_push_devices(case)
        end = case.now if chosen.now else chosen.next_at
    return None if end == case.now else Hold(ReasonCode.QUIET_HOURS, end)


def check_digest(case: Case, channel: Channel) -> Verdict | None:
    """Does the type collect notifications in a digest?"""
    if case.type.digest is None or channel not in INTERRUPTING or passes_quiet_hours(case):
        return None
    # The latest time: if the digest has begun already, it is due earlier.
    due_at = find_due(case.type.digest, case.now, case.recipient.timezone)
    return Fold(ReasonCode.JOINS_DIGEST, until=due_at)


ORDER: tuple[tuple[str, Rule], ...] = (
    ("user", check_user),
    ("expiry", check_expiry),
    ("read", check_read),
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
    """Return a decision for each channel of the case, in order."""
    return tuple(_decide_channel(case, channel) for channel in case.channels)


def _decide_channel(case: Case, channel: Channel) -> Decision:
    for name, rule in ORDER:
        verdict = rule(case, channel)
        if verdict is not None:
            return Decision(channel, verdict, name)
    reason = ReasonCode.MANDATORY if passes_quiet_hours(case) else ReasonCode.ALLOWED
    return Decision(channel, Send(reason), DEFAULT_RULE)


def choose_push_devices(case: Case) -> ChosenDevices:
    """Return the devices that a push goes to now, and those that are quiet now."""
    return choose_devices(
        case.devices,
        case.type,
        case.recipient,
        case.now,
        ignores_toggles=is_mandatory(case),
        ignores_quiet_hours=passes_quiet_hours(case),
    )


def is_mandatory(case: Case) -> bool:
    """Whether toggles are ignored: safety, security, and types that users cannot disable."""
    return case.type.category in MANDATORY_CATEGORIES or not case.type.user_can_disable


def passes_quiet_hours(case: Case) -> bool:
    """Whether quiet hours and limits are ignored: safety, security, and critical events."""
    return case.type.category in MANDATORY_CATEGORIES or case.priority is Priority.CRITICAL
