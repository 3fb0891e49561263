"""The built-in types that every app has, with their templates in English.

An app can change any of them and their templates.
"""

from __future__ import annotations

from typing import NamedTuple

from clarion.catalog.model import (
    MANDATORY_CATEGORIES,
    PUBLISHED,
    Category,
    CategoryDefinition,
    Channel,
    Dedupe,
    DedupeMode,
    NotificationType,
    Priority,
    Template,
)

ENGLISH = "en"
# By name, in the order in which they are shown.
CATEGORIES = {
    each.name: each
    for each in (
        CategoryDefinition(
            name=name.value,
            title=title,
            description=description,
            user_can_disable=name not in MANDATORY_CATEGORIES,
        )
        for name, title, description in (
            (Category.SOCIAL, "Social", "What other people do: likes, comments, followers."),
            (Category.SAFETY, "Safety", "Warnings and decisions about content and accounts."),
            (Category.SECURITY, "Security", "Sign-ins, passwords and locked accounts."),
            (Category.NEWS, "News", "What is new in the app."),
            (Category.MARKETING, "Marketing", "Offers and promotions."),
            (
                Category.TRANSACTIONAL,
                "Transactional",
                "About what you did, or follow.",
            ),
        )
    )
}
_HOUR_S = 3_600
_FEED = (Channel.IN_APP, Channel.PUSH)
_NEWSLETTER = (Channel.IN_APP, Channel.EMAIL)
_ALERT = (Channel.IN_APP, Channel.PUSH, Channel.EMAIL)
# A user who is locked out cannot open the app, and may have lost access to their email.
_ALL = (*_ALERT, Channel.SMS)
_DELIVERY = {
    Category.SOCIAL: (_FEED, Priority.MEDIUM),
    Category.SAFETY: (_ALERT, Priority.HIGH),
    Category.SECURITY: (_ALERT, Priority.HIGH),
    Category.NEWS: (_NEWSLETTER, Priority.MEDIUM),
    Category.MARKETING: (_NEWSLETTER, Priority.LOW),
    Category.TRANSACTIONAL: (_FEED, Priority.MEDIUM),
}

_ACTORS = (
    "{% if actor.name %}{{ actor.name }}{% else %}Someone{% endif %}"
    "{% if count > 1 %} and {{ count | minus: 1 }} "
    "{% if count > 2 %}others{% else %}other{% endif %}{% endif %}"
)
_QUOTE = "{% if snippet %}: “{{ snippet }}”{% endif %}"
_DETAIL = "{% if snippet %} {{ snippet }}{% endif %}"
# Emails are HTML.
_HELLO = "<p>Hello{% if user.name %} {{ user.name }}{% endif %},</p>\n"


class _BuiltIn(NamedTuple):
    type: str
    display_name: str
    category: Category
    title: str
    text: str
    advice: str = ""  # a second paragraph, in emails only
    delivery: tuple[tuple[Channel, ...], Priority] | None = None  # if not that of the category
    paragraph: str = "<p>"  # begins the text in emails


def _social(type_name: str, display_name: str, title: str, action: str) -> _BuiltIn:
    return _BuiltIn(type_name, display_name, Category.SOCIAL, title, f"{_ACTORS} {action}")


def _snippet_or(text: str) -> str:
    return f"{{% if snippet %}}{{{{ snippet }}}}{{% else %}}{text}{{% endif %}}"


_TABLE = (
    _social("POST_LIKE", "Likes", "New like", f"liked your post{_QUOTE}"),
    _social("POST_COMMENT", "Comments", "New comment", f"commented on your post{_QUOTE}"),
    _social("POST_SHARE", "Shares", "Your post was shared", f"shared your post{_QUOTE}"),
    _social("COMMENT_REPLY", "Replies", "New reply", f"replied to your comment{_QUOTE}"),
    _social("FOLLOWER_NEW", "New followers", "New follower", "started to follow you"),
    _BuiltIn(
        "SAFETY_CONTENT_FLAGGED",
        "Flagged content",
        Category.SAFETY,
        "Your content was flagged",
        f"Something you posted was flagged and is under review.{_DETAIL}",
        "While we look at it, others may not see it. You need not do anything.",
    ),
    _BuiltIn(
        "SAFETY_ACCOUNT_WARNING",
        "Account warnings",
        Category.SAFETY,
        "A warning about your account",
        f"Your account has a warning: please look at our rules.{_DETAIL}",
        "Another breach of the rules may limit what your account can do.",
    ),
    _BuiltIn(
        "SECURITY_NEW_DEVICE",
        "Sign-ins from new devices",
        Category.SECURITY,
        "Sign-in from a new device",
        f"Someone signed in to your account from a new device.{_DETAIL}",
        "If that was you, all is well. If not, change your password now.",
    ),
    _BuiltIn(
        "SECURITY_PASSWORD_CHANGED",
        "Password changes",
        Category.SECURITY,
        "Your password was changed",
        f"The password of your account was changed.{_DETAIL}",
        "If that was not you, reset your password now.",
    ),
    _BuiltIn(
        "SECURITY_ACCOUNT_LOCKED",
        "Locked account",
        Category.SECURITY,
        "Your account is locked",
        f"Your account was locked to protect it.{_DETAIL}",
        "To unlock it, reset your password.",
        delivery=(_ALL, Priority.CRITICAL),
    ),
    _BuiltIn(
        "NEWS_SYSTEM_UPDATE",
        "News",
        Category.NEWS,
        "What is new",
        _snippet_or("There is something new for you."),
    ),
    _BuiltIn(
        "MARKETING_PROMOTION",
        "Offers",
        Category.MARKETING,
        "An offer for you",
        _snippet_or("There is an offer for you."),
    ),
    _BuiltIn(
        PUBLISHED,
        "Messages of topics",
        Category.TRANSACTIONAL,
        "{% if title %}{{ title }}{% else %}New message{% endif %}",
        "{% if message %}{{ message }}{% else %}There is a new message.{% endif %}",
        # The lines of a program's output stay lines.
        paragraph='<p style="white-space: pre-line">',
    ),
)


def _define(row: _BuiltIn) -> NotificationType:
    channels, priority = row.delivery or _DELIVERY[row.category]
    is_social = row.category is Category.SOCIAL
    return NotificationType(
        type=row.type,
        display_name=row.display_name,
        category=row.category.value,
        default_channels=channels,
        priority=priority,
        user_can_disable=row.category not in MANDATORY_CATEGORIES,
        # Likes of one post become one notification with a count if they share a dedupe key.
        dedupe=Dedupe(window_s=_HOUR_S, mode=DedupeMode.AGGREGATE) if is_social else None,
    )


def _write_templates(row: _BuiltIn) -> tuple[Template, ...]:
    advice = f"<p>{row.advice}</p>\n" if row.advice else ""
    texts = {
        Channel.IN_APP: (row.title, row.text),
        Channel.PUSH: (row.title, row.text),
        Channel.EMAIL: (row.title, f"{_HELLO}{row.paragraph}{row.text}</p>\n{advice}"),
        Channel.SMS: (None, row.text),
    }
    return tuple(
        Template(
            type=row.type,
            channel=channel,
            language=ENGLISH,
            version=0,
            subject=subject,
            body=body,
            variables=(),
            created_at=0,
        )
        for channel, (subject, body) in texts.items()
    )


TYPES = {row.type: _define(row) for row in _TABLE}
TEMPLATES = {row.type: _write_templates(row) for row in _TABLE}
