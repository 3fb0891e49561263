"""The types every app has from the start, with their words in English.

An app may change any of them, or its words; what it does not change stays as it is here.
"""

from __future__ import annotations

from typing import NamedTuple

from clarion.catalog.model import (
    Category,
    Channel,
    Dedupe,
    DedupeMode,
    NotificationType,
    Priority,
    Template,
)

ENGLISH = "en"
_HOUR_S = 3_600

_FEED = (Channel.IN_APP, Channel.PUSH)
_LETTER = (Channel.IN_APP, Channel.EMAIL)
_ALARM = (Channel.IN_APP, Channel.PUSH, Channel.EMAIL)
# Who is locked out cannot look into the app, and may not reach their mail.
_LOUDEST = (*_ALARM, Channel.SMS)

_WHO = "{% if actor.name %}{{ actor.name }}{% else %}Someone{% endif %}"
_AND_OTHERS = (
    "{% if count > 1 %} and {{ count | minus: 1 }} "
    "{% if count > 2 %}others{% else %}other{% endif %}{% endif %}"
)
_QUOTE = "{% if snippet %}: “{{ snippet }}”{% endif %}"
_DETAIL = "{% if snippet %} {{ snippet }}{% endif %}"
# Mails are HTML.
_HELLO = "<p>Hello{% if user.name %} {{ user.name }}{% endif %},</p>\n"


class _Ready(NamedTuple):
    type: str
    display_name: str
    category: Category
    channels: tuple[Channel, ...]
    priority: Priority
    title: str
    line: str
    letter: str = ""  # what a mail says beyond the line


_TABLE = (
    _Ready(
        "POST_LIKE",
        "Likes",
        Category.SOCIAL,
        _FEED,
        Priority.MEDIUM,
        "New like",
        f"{_WHO}{_AND_OTHERS} liked your post{_QUOTE}",
    ),
    _Ready(
        "POST_COMMENT",
        "Comments",
        Category.SOCIAL,
        _FEED,
        Priority.MEDIUM,
        "New comment",
        f"{_WHO}{_AND_OTHERS} commented on your post{_QUOTE}",
    ),
    _Ready(
        "POST_SHARE",
        "Shares",
        Category.SOCIAL,
        _FEED,
        Priority.MEDIUM,
        "Your post was shared",
        f"{_WHO}{_AND_OTHERS} shared your post{_QUOTE}",
    ),
    _Ready(
        "COMMENT_REPLY",
        "Replies",
        Category.SOCIAL,
        _FEED,
        Priority.MEDIUM,
        "New reply",
        f"{_WHO}{_AND_OTHERS} replied to your comment{_QUOTE}",
    ),
    _Ready(
        "FOLLOWER_NEW",
        "New followers",
        Category.SOCIAL,
        _FEED,
        Priority.MEDIUM,
        "New follower",
        f"{_WHO}{_AND_OTHERS} started to follow you",
    ),
    _Ready(
        "SAFETY_CONTENT_FLAGGED",
        "Flagged content",
        Category.SAFETY,
        _ALARM,
        Priority.HIGH,
        "Your content was flagged",
        f"Something you posted was flagged and is under review.{_DETAIL}",
        "While we look at it, others may not see it. You need not do anything.",
    ),
    _Ready(
        "SAFETY_ACCOUNT_WARNING",
        "Account warnings",
        Category.SAFETY,
        _ALARM,
        Priority.HIGH,
        "A warning about your account",
        f"Your account has a warning: please look at our rules.{_DETAIL}",
        "Another breach of the rules may limit what your account can do.",
    ),
    _Ready(
        "SECURITY_NEW_DEVICE",
        "Sign-ins from new devices",
        Category.SECURITY,
        _ALARM,
        Priority.HIGH,
        "Sign-in from a new device",
        f"Someone signed in to your account from a new device.{_DETAIL}",
        "If that was you, all is well. If not, change your password now.",
    ),
    _Ready(
        "SECURITY_PASSWORD_CHANGED",
        "Password changes",
        Category.SECURITY,
        _ALARM,
        Priority.HIGH,
        "Your password was changed",
        f"The password of your account was changed.{_DETAIL}",
        "If that was not you, reset your password now.",
    ),
    _Ready(
        "SECURITY_ACCOUNT_LOCKED",
        "Locked account",
        Category.SECURITY,
        _LOUDEST,
        Priority.CRITICAL,
        "Your account is locked",
        f"Your account was locked to protect it.{_DETAIL}",
        "To unlock it, reset your password.",
    ),
    _Ready(
        "NEWS_SYSTEM_UPDATE",
        "News",
        Category.NEWS,
        _LETTER,
        Priority.MEDIUM,
        "What is new",
        "{% if snippet %}{{ snippet }}{% else %}There is something new for you.{% endif %}",
    ),
    _Ready(
        "MARKETING_PROMOTION",
        "Offers",
        Category.MARKETING,
        _LETTER,
        Priority.LOW,
        "An offer for you",
        "{% if snippet %}{{ snippet }}{% else %}There is an offer for you.{% endif %}",
    ),
)


def _type(ready: _Ready) -> NotificationType:
    is_social = ready.category is Category.SOCIAL
    return NotificationType(
        type=ready.type,
        display_name=ready.display_name,
        category=ready.category,
        default_channels=ready.channels,
        priority=ready.priority,
        user_can_disable=ready.category not in {Category.SAFETY, Category.SECURITY},
        # Likes of one post are one line that counts, as long as they share a dedupe key.
        dedupe=Dedupe(window_s=_HOUR_S, mode=DedupeMode.AGGREGATE) if is_social else None,
    )


def _templates(ready: _Ready) -> tuple[Template, ...]:
    letter = f"{_HELLO}<p>{ready.line}</p>\n" + (f"<p>{ready.letter}</p>\n" if ready.letter else "")
    words = {
        Channel.IN_APP: (ready.title, ready.line),
        Channel.PUSH: (ready.title, ready.line),
        Channel.EMAIL: (ready.title, letter),
        Channel.SMS: (None, ready.line),
    }
    return tuple(
        Template(
            type=ready.type,
            channel=channel,
            language=ENGLISH,
            version=0,
            subject=subject,
            body=body,
            variables=(),
            created_at=0,
        )
        for channel, (subject, body) in words.items()
    )


TYPES = {ready.type: _type(ready) for ready in _TABLE}
TEMPLATES = {ready.type: _templates(ready) for ready in _TABLE}
