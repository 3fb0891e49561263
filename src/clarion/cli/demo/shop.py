"""The content of the demo app: its types with their texts, providers, segments and topics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

TOPICS = ("offers", "news", "outages")
SEGMENTS = {
    "vips": "tag = 'vip'",
    "german-speakers": "language = 'de'",
    "paying": "attributes.plan in ('plus', 'pro')",
}
# By type: its settings, and its texts by channel and language.
TYPES: dict[str, dict[str, Any]] = {
    "ORDER_SHIPPED": {
        "display_name": "Shipped orders",
        "category": "transactional",
        "default_channels": ["in_app", "push", "email", "sms"],
        "priority": "high",
    },
    "ORDER_DELAYED": {
        "display_name": "Delayed orders",
        "category": "transactional",
        "default_channels": ["in_app", "push", "webhook", "sms"],
    },
    "PRICE_ALERT": {
        "display_name": "Price alerts",
        "category": "marketing",
        "default_channels": ["in_app", "push"],
        "rate_limit": {"per_user_per_hour": 3, "overflow": "drop"},
        "priority": "low",
    },
    "WEEKLY_SUMMARY": {
        "display_name": "Summaries",
        "category": "news",
        "default_channels": ["email"],
        "digest": {"window_s": 600},
        "priority": "low",
    },
    "STOCK_EXPORTED": {
        "display_name": "Exports of the stock",
        "category": "transactional",
        "default_channels": ["in_app", "stub"],
        # For another system, which needs it even if the user has read it in the inbox.
        "send_when_read": True,
    },
}
_SHIPPED = "Order {{ order }} is on its way. It arrives {{ day }}."
_SHIPPED_DE = "Bestellung {{ order }} ist unterwegs. Sie kommt {{ day }} an."
_DELAYED = "Order {{ order }} takes {{ days }} days longer."
# By type, channel and language: subject and body.
TEMPLATES: dict[tuple[str, str, str], tuple[str | None, str]] = {
    ("ORDER_SHIPPED", "in_app", "en"): ("Your order is on its way", _SHIPPED),
    ("ORDER_SHIPPED", "in_app", "de"): ("Deine Bestellung ist unterwegs", _SHIPPED_DE),
    ("ORDER_SHIPPED", "push", "en"): ("Your order is on its way", _SHIPPED),
    ("ORDER_SHIPPED", "push", "de"): ("Deine Bestellung ist unterwegs", _SHIPPED_DE),
    ("ORDER_SHIPPED", "email", "en"): (
        "Order {{ order }}",
        f"Hello {{{{ user.name }}}},\n\n{_SHIPPED}\n",
    ),
    ("ORDER_SHIPPED", "sms", "en"): (None, _SHIPPED),
    ("ORDER_DELAYED", "in_app", "en"): ("Your order is late", _DELAYED),
    ("ORDER_DELAYED", "push", "en"): ("Your order is late", _DELAYED),
    ("ORDER_DELAYED", "webhook", "en"): ("Order delayed", _DELAYED),
    ("ORDER_DELAYED", "sms", "en"): (None, _DELAYED),
    ("PRICE_ALERT", "in_app", "en"): ("{{ item }} is cheaper", "{{ item }} is {{ price }} now."),
    ("PRICE_ALERT", "push", "en"): ("{{ item }} is cheaper", "{{ item }} is {{ price }} now."),
    ("WEEKLY_SUMMARY", "email", "en"): (
        "Your week",
        "{{ count }} new things, the last: {{ item }}.",
    ),
    ("STOCK_EXPORTED", "in_app", "en"): ("Export", "Export {{ order }} is ready."),
    ("STOCK_EXPORTED", "stub", "en"): ("Export", "Export {{ order }} is ready."),
}
VARIABLES = {
    "ORDER_SHIPPED": ["order", "day"],
    "ORDER_DELAYED": ["order", "days"],
    "PRICE_ALERT": ["item", "price"],
    "WEEKLY_SUMMARY": ["item"],
    "STOCK_EXPORTED": ["order"],
}
_SMTP = {"port": 587, "security": "starttls", "from": "Demo shop <shop@demo.example.com>"}
# The first email server does not exist: each mail is tried there, and then sent by the second,
# which is in sandbox mode like all others. Nothing leaves this machine.
PROVIDERS: dict[str, dict[str, Any]] = {
    "email/main": {
        "kind": "smtp",
        "settings": {"host": "smtp.demo.invalid", **_SMTP},
        "order": 0,
        "timeout_s": 5,
    },
    "email/backup": {
        "kind": "smtp",
        "settings": {"host": "mail.example.com", **_SMTP},
        "order": 1,
        "sandbox": True,
    },
    "sms/twilio": {
        "kind": "twilio",
        "settings": {"account_sid": f"AC{'0' * 32}", "from": "+15005550006"},
        "secrets": {"auth_token": "demo"},
        "sandbox": True,
    },
    # No such server: messages to it wait for their next attempt.
    "webhook/warehouse": {
        "kind": "webhook",
        "settings": {"url": "https://warehouse.demo.invalid/orders", "types": ["ORDER_DELAYED"]},
    },
}
_ITEMS = ("Blue kettle", "Desk lamp", "Rain jacket", "Board game", "Cast-iron pan", "Headphones")
_DAYS = ("on Monday", "on Tuesday", "tomorrow", "this evening")
_SNIPPETS = ("What a view!", "Where is this?", "Congratulations!", "Ha, same here", "So good")

Draft = tuple[str, dict[str, Any]]


def _order(chance: random.Random) -> str:
    return f"A-{chance.randrange(10_000, 99_999)}"


def _social(type_name: str) -> Callable[[random.Random], Draft]:
    def draft(chance: random.Random) -> Draft:
        post = f"post-{chance.randrange(20)}"
        fields: dict[str, Any] = {"target": {"id": post, "type": "post"}}
        if type_name == "POST_LIKE":
            fields["dedupe_key"] = post
        elif type_name == "POST_COMMENT":
            fields["data"] = {"snippet": chance.choice(_SNIPPETS)}
        return type_name, {**fields, "deeplink": f"https://shop.example.com/{post}"}

    return draft


def _with_data(
    type_name: str, make: Callable[[random.Random], dict[str, Any]], **fields: Any
) -> Callable[[random.Random], Draft]:
    return lambda chance: (type_name, {"data": make(chance), **fields})


# What happens, and how often compared to the others.
EVENTS: tuple[tuple[int, Callable[[random.Random], Draft]], ...] = (
    (24, _social("POST_LIKE")),
    (14, _social("POST_COMMENT")),
    (5, _social("FOLLOWER_NEW")),
    (
        14,
        _with_data("ORDER_SHIPPED", lambda c: {"order": _order(c), "day": c.choice(_DAYS)}),
    ),
    (4, _with_data("ORDER_DELAYED", lambda c: {"order": _order(c), "days": c.randrange(1, 5)})),
    (
        12,
        _with_data(
            "PRICE_ALERT",
            lambda c: {"item": c.choice(_ITEMS), "price": f"€{c.randrange(9, 90)}"},
        ),
    ),
    (5, _with_data("WEEKLY_SUMMARY", lambda c: {"item": c.choice(_ITEMS)})),
    (5, _with_data("STOCK_EXPORTED", lambda c: {"order": _order(c)})),
    (3, _with_data("SECURITY_NEW_DEVICE", lambda _: {"snippet": "Firefox on Linux, Leipzig."})),
    (3, _with_data("NEWS_SYSTEM_UPDATE", lambda _: {"snippet": "Search finds your orders now."})),
    (4, _with_data("MARKETING_PROMOTION", lambda c: {"snippet": f"{c.choice(_ITEMS)}: 20 % off."})),
)


def draft_event(chance: random.Random) -> Draft:
    """Return the type and the fields of something that happens."""
    (draft,) = chance.choices(
        [each for _, each in EVENTS], weights=[weight for weight, _ in EVENTS]
    )
    return draft(chance)
