"""The reasons of decisions in words for people; the codes are those of the API."""

from __future__ import annotations

from clarion.history.model import ReasonCode

REASONS: dict[str, str] = {
    ReasonCode.ALLOWED.value: "Allowed: no rule refuses or delays it",
    ReasonCode.MANDATORY.value: "Always sent: the user cannot turn it off",
    ReasonCode.USER_UNKNOWN.value: "The app has no such user",
    ReasonCode.USER_INACTIVE.value: "The user is inactive",
    ReasonCode.EXPIRED.value: "It expired before it was sent",
    ReasonCode.ALREADY_READ.value: "The user read it while it waited",
    ReasonCode.CANCELLED.value: "The event was cancelled",
    ReasonCode.TYPE_INACTIVE.value: "The type is inactive",
    ReasonCode.CHANNEL_UNAVAILABLE.value: "No provider for this channel",
    ReasonCode.NO_TEMPLATE.value: "No template for this channel",
    ReasonCode.NO_ADDRESS.value: "The user has no address for this channel",
    ReasonCode.CATEGORY_OFF.value: "The user turned the category off",
    ReasonCode.CHANNEL_OFF.value: "The user turned this channel off",
    ReasonCode.SMS_NOT_OPTED_IN.value: "The user has not opted in to text messages",
    ReasonCode.NO_DEVICE.value: "The user has no device",
    ReasonCode.DEVICES_OFF.value: "All devices of the user refuse it",
    ReasonCode.SENT_TO_TOPIC.value: "The devices got it as subscribers of the topic",
    ReasonCode.DUPLICATE.value: "A duplicate of an earlier one",
    ReasonCode.FOLDED_INTO_UNREAD.value: "Folded into an unread one",
    ReasonCode.LIMIT_REACHED.value: "A limit is reached",
    ReasonCode.LIMIT_WAITS.value: "A limit is reached: it waits",
    ReasonCode.LIMIT_JOINS_DIGEST.value: "A limit is reached: it joins a digest",
    ReasonCode.QUIET_HOURS.value: "Quiet hours of the user",
    ReasonCode.JOINS_DIGEST.value: "It joins a digest",
    ReasonCode.ATTEMPTS_EXHAUSTED.value: "All attempts failed",
    ReasonCode.REJECTED.value: "The provider refused it",
    ReasonCode.ADDRESS_GONE.value: "The address no longer exists",
    ReasonCode.UNDELIVERED.value: "The provider reported that it did not arrive",
}


def explain_reason(code: str | None) -> str:
    """Return the words for a reason; a code without words is returned unchanged."""
    return "" if code is None else REASONS.get(code, code)


# The rules in words, by their names; they are asked in the order that the API says.
RULES: dict[str, str] = {
    "user": "Does the user exist, and is it active?",
    "expiry": "Has it expired?",
    "read": "Has the user read it while it waited?",
    "type": "Does the type use the channel, and can it be sent?",
    "preferences": "Has the user turned it off?",
    "devices": "Does a device accept it?",
    "repeat": "Is it a repetition of an earlier one?",
    "limit": "Is a limit reached?",
    "quiet_hours": "Are there quiet hours?",
    "digest": "Does it join a digest?",
    "default": "Nothing else decided",
}
