"""The users of the demo: names, languages, time zones and preferences."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

_LAST_NAMES = (
    *("Almeida", "Bauer", "Costa", "Duarte", "Eriksen", "Fischer", "Garcia", "Haddad", "Ito"),
    *("Jensen", "Kaya", "Lindqvist", "Moreau", "Novak", "Okafor", "Patel", "Rossi", "Silva"),
    *("Tanaka", "Weber"),
)
_FIRST_NAMES = {
    ("en", "Europe/London"): "Amelia Oliver Grace Harry",
    ("en", "America/New_York"): "Emma Liam Ava Noah",
    ("de", "Europe/Berlin"): "Lena Jonas Mia Paul",
    ("pt-BR", "America/Sao_Paulo"): "Ana Bruno Clara Davi",
    ("fr", "Europe/Paris"): "Chloé Hugo Inès Louis",
    ("ja", "Asia/Tokyo"): "Yui Haruto Aoi Sora",
    ("es", "America/Mexico_City"): "Lucía Mateo Sofía Diego",
    ("hi", "Asia/Kolkata"): "Asha Ravi Diya Arjun",
}
_NAMES = [
    (first, language, timezone)
    for (language, timezone), names in _FIRST_NAMES.items()
    for first in names.split()
]
_CITIES = {
    "Europe/London": "Leeds",
    "America/New_York": "Boston",
    "Europe/Berlin": "Leipzig",
    "America/Sao_Paulo": "Recife",
    "Europe/Paris": "Lyon",
    "Asia/Tokyo": "Osaka",
    "America/Mexico_City": "Puebla",
    "Asia/Kolkata": "Pune",
}
NIGHT = [*[True] * 7, *[False] * 15, *[True] * 2]  # from 22:00 to 7:00
NEVER = [False] * 24
ALWAYS = [True] * 24
PLATFORMS = ("ios", "android", "web", "clarion")


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user of the demo app, and how they behave."""

    id: str
    name: str
    user: dict[str, Any]
    preferences: dict[str, Any] = field(default_factory=dict)
    # The platform of their device; None if they have none.
    platform: str | None = None
    # Whether the device is connected while the demo runs.
    is_online: bool = False
    # Whether the channel with which failures are tried never succeeds.
    is_failing: bool = False
    # How likely they are to look at a notification.
    interest: float = 0.5


def make_people(count: int, chance: random.Random) -> list[Person]:
    """Return a number of people; the first ones are the same each time."""
    return [_make_person(number, chance) for number in range(count)]


def _make_person(number: int, chance: random.Random) -> Person:
    first, language, timezone = _NAMES[(number * 5 + number // len(_NAMES)) % len(_NAMES)]
    last = _LAST_NAMES[number * 7 % len(_LAST_NAMES)]
    user_id = f"person-{number + 1:03}"
    plan = ("free", "plus", "pro")[number % 3]
    user = {
        "id": user_id,
        "name": f"{first} {last}",
        "email": f"{user_id}@demo.example.com",
        "phone": f"+49151{number:08}",
        "language": language,
        "timezone": timezone,
        "tags": ["vip"] if _is_one(number, 7) else ["new"] if _is_one(number, 4) else [],
        # Of the channel with which failures are tried: one in ten never accepts anything.
        "attributes": {
            "plan": plan,
            "city": _CITIES[timezone],
            "stub": _choose_stub(number),
        },
    }
    has_device = not _is_one(number, 5)
    return Person(
        id=user_id,
        name=first,
        user=user,
        preferences=_choose_preferences(number),
        platform=PLATFORMS[number % len(PLATFORMS)] if has_device else None,
        is_failing=_is_one(number, 10),
        is_online=has_device and not _is_one(number, 3),
        interest=chance.uniform(0.1, 0.9),
    )


def _is_one(number: int, of: int) -> bool:
    """Whether something applies to this person, as it does to one of several."""
    return number % of == of // 2


def _choose_stub(number: int) -> str:
    if _is_one(number, 10):
        return "retry"
    return "retry 1" if _is_one(number, 6) else "delivered"


def _choose_preferences(number: int) -> dict[str, Any]:
    """Return the preferences of a person: most have quiet hours at night, some all day."""
    wanted: dict[str, Any] = {"quiet_hours": NEVER if number % 2 else NIGHT}
    if _is_one(number, 8):
        wanted["quiet_hours"] = ALWAYS
    if _is_one(number, 6):
        wanted["categories"] = {"marketing": False}
    if _is_one(number, 9):
        wanted["types"] = {"POST_LIKE": {"push": False}}
    if _is_one(number, 4):
        wanted["types"] = {"ORDER_SHIPPED": {"sms": True}, "ORDER_DELAYED": {"sms": True}}
    return wanted
