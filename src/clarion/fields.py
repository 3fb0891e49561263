"""What is said of a person, checked and written in one form.

Each check returns the value as it is stored, or raises `ValueError` with the reason.
"""

from __future__ import annotations

import re
import unicodedata
import zoneinfo
from functools import cache
from typing import TYPE_CHECKING

import phonenumbers

if TYPE_CHECKING:
    from collections.abc import Sequence

TAGS_LIMIT = 50
_ID = re.compile(r"[A-Za-z0-9._~:@=+|-]{1,128}")
_TOPIC = re.compile(r"[A-Za-z0-9._~:=-]{1,200}")
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_TAG = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,64}")
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_EMAIL = re.compile(
    rf"(?=.{{3,254}}\Z)[\w!#$%&'*+/=?^`{{|}}~-]+(?:\.[\w!#$%&'*+/=?^`{{|}}~-]+)*"
    rf"@(?:{_LABEL}\.)+{_LABEL}"
)
_LOCAL_LIMIT = 64
_PHONE = re.compile(r"\+[0-9 ()./-]{4,40}")
_LANGUAGE = re.compile(
    r"(?P<language>[a-z]{2,3})(?:-(?P<script>[a-z]{4}))?(?:-(?P<region>[a-z]{2}|[0-9]{3}))?"
    r"(?P<rest>(?:-[a-z0-9]{4,8}){0,2})",
    re.IGNORECASE | re.ASCII,
)


def is_user_id(text: str) -> bool:
    """Whether a person can have this id."""
    return _ID.fullmatch(text) is not None


def check_user_id(text: str) -> str:
    """Return the id of a person."""
    if not is_user_id(text):
        msg = "must have 1 to 128 letters, digits or . _ ~ : @ = + | -"
        raise ValueError(msg)
    return text


def check_topic(text: str) -> str:
    """Return the name of a topic that people follow."""
    if not _TOPIC.fullmatch(text):
        msg = "must have 1 to 200 letters, digits or . _ ~ : = -"
        raise ValueError(msg)
    return text


def check_name(text: str) -> str:
    """Return a name."""
    if not _NAME.fullmatch(text) or not text.strip():
        msg = "must have 1 to 200 characters, none of them a control character"
        raise ValueError(msg)
    return text


def check_email(text: str) -> str:
    """Return an address as it is: before the @, capitals may matter."""
    local = text.partition("@")[0]
    if len(local) > _LOCAL_LIMIT or not _EMAIL.fullmatch(text):
        msg = "must be a mail address, like ana@example.com"
        raise ValueError(msg)
    return text


def check_phone(text: str) -> str:
    """Return a phone number as E.164: +4915112345678."""
    reason = "must be a phone number with its country, like +49 151 12345678"
    if not _PHONE.fullmatch(text):
        raise ValueError(reason)
    try:
        number = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        raise ValueError(reason) from error
    if not phonenumbers.is_possible_number(number):
        raise ValueError(reason)
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def check_language(text: str) -> str:
    """Return a language tag in its usual form: pt-BR."""
    found = _LANGUAGE.fullmatch(text)
    if not found:
        msg = "must be a language tag, like en or pt-BR"
        raise ValueError(msg)
    script, region = found["script"], found["region"]
    parts = [found["language"].lower(), script and script.title(), region and region.upper()]
    return "-".join(part for part in parts if part) + found["rest"].lower()


def check_timezone(text: str) -> str:
    """Return the name of a time zone."""
    if text not in _timezones():
        msg = "must be a name of the IANA list, like Europe/Berlin"
        raise ValueError(msg)
    return text


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags, each once."""
    if len(tags) > TAGS_LIMIT or not all(_TAG.fullmatch(tag) for tag in tags):
        msg = f"must be at most {TAGS_LIMIT} tags of 1 to 64 characters"
        raise ValueError(msg)
    return tuple(dict.fromkeys(tags))


@cache
def _timezones() -> frozenset[str]:
    # Reads a folder: far too slow to be asked for every person.
    return frozenset(zoneinfo.available_timezones())


# Control characters, one of which PostgreSQL does not take, and halves of surrogate pairs, which
# no encoding takes.
_UNWRITTEN = frozenset({"Cc", "Cs"})


def is_plain(text: str) -> bool:
    """Whether every store, log and header can take the text."""
    return not any(unicodedata.category(character) in _UNWRITTEN for character in text)
