"""The fields of a user that the API takes: how each is checked, and in what form it is stored."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from clarion.fields import (
    NO_CONTROLS,
    VISIBLE,
    check_json,
    check_language,
    check_timezone,
    documented,
)
from clarion.people.model import User, UserStatus
from clarion.people.profile import Profile

TAGS_LIMIT = 50
ATTRIBUTES_LIMIT = 100
OBJECT_LIMIT_BYTES = 16_384
CONSENTS_LIMIT = 50
_LOCAL_PART_LIMIT = 64
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_TAG = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,64}")
_PURPOSE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_EMAIL = re.compile(
    rf"(?=.{{3,254}}\Z)[\w!#$%&'*+/=?^`{{|}}~-]+(?:\.[\w!#$%&'*+/=?^`{{|}}~-]+)*"
    rf"@(?:{_LABEL}\.)+{_LABEL}"
)
_PHONE = re.compile(r"\+[0-9 ()./-]{4,40}")
# The same for the OpenAPI document.
NAME = documented(minLength=1, maxLength=200, pattern=VISIBLE)
EMAIL = documented(format="email", maxLength=254)
PHONE = documented(pattern=f"^{_PHONE.pattern}$")
TAG = documented(minLength=1, maxLength=64, pattern=NO_CONTROLS)
PURPOSE = documented(pattern=f"^{_PURPOSE.pattern}$")
_DEFAULT = User(app_id="", id="", created_at=0, updated_at=0)


def check_field(name: str, value: Any) -> Any:
    """Return a field's value as it is stored; None stands for the default of the field.

    `ValueError` says what is wrong.
    """
    if value is None:
        return getattr(_DEFAULT, name)
    check = _CHECKS.get(name)
    return value if check is None else check(value)


def check_name(text: str) -> str:
    if not _NAME.fullmatch(text) or not text.strip():
        raise ValueError("must have 1 to 200 characters, none of them a control character")
    return text


def check_email(text: str) -> str:
    """Return the address unchanged: before the @, upper and lower case may differ."""
    local_part = text.partition("@")[0]
    if len(local_part) > _LOCAL_PART_LIMIT or not _EMAIL.fullmatch(text):
        raise ValueError("must be an email address, like ana@example.com")
    return text


def fold_email(address: str) -> str:
    """Return an address in lower case, as its key: two users of an app cannot have the same."""
    return unicodedata.normalize("NFC", address.casefold())


def fold_name(name: str) -> str:
    """Return a name without capitals A to Z, which is what `lower` does on both engines."""
    return name.encode().lower().decode()


def check_phone(text: str) -> str:
    """Return a phone number as E.164: +4915112345678."""
    reason = "must be a phone number with its country code, like +49 151 12345678"
    if not _PHONE.fullmatch(text):
        raise ValueError(reason)
    import phonenumbers  # noqa: PLC0415 - sixty modules, only for this

    try:
        number = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        raise ValueError(reason) from error
    if not phonenumbers.is_possible_number(number):
        raise ValueError(reason)
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def check_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without duplicates."""
    if len(tags) > TAGS_LIMIT or not all(_TAG.fullmatch(tag) for tag in tags):
        raise ValueError(f"must be at most {TAGS_LIMIT} tags of 1 to 64 characters")
    return tuple(dict.fromkeys(tags))


def check_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return attributes or metadata, if they are not too large."""
    check_json(value, OBJECT_LIMIT_BYTES)
    return value


def check_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes, if they are not too many: each can be looked up by its value."""
    if len(attributes) > ATTRIBUTES_LIMIT:
        raise ValueError(
            f"must have at most {ATTRIBUTES_LIMIT} names; what no segment asks for can be metadata"
        )
    return check_object(attributes)


def check_profile(profile: Profile) -> Profile:
    """Return the groups of a user, if they are not too large together."""
    if len(msgspec.json.encode(profile)) > OBJECT_LIMIT_BYTES:
        reason = f"the groups of a user must have at most {OBJECT_LIMIT_BYTES:,} bytes as JSON"
        raise ValueError(f"is too large: {reason}")
    return profile


def check_status(text: str) -> UserStatus:
    if text not in set(UserStatus):
        raise ValueError(f"must be one of {', '.join(UserStatus)}")
    return UserStatus(text)


def check_consent(consent: dict[str, Any]) -> dict[str, Any]:
    if len(consent) > CONSENTS_LIMIT or not all(_PURPOSE.fullmatch(each) for each in consent):
        raise ValueError(
            f"must have at most {CONSENTS_LIMIT} names of 1 to 64 letters, digits or . _ : -"
        )
    return check_object(consent)


# A field that is not named here needs no check beyond its type.
_CHECKS: dict[str, Callable[[Any], object]] = {
    "name": check_name,
    "email": check_email,
    "phone": check_phone,
    "language": check_language,
    "timezone": check_timezone,
    "status": check_status,
    "tags": check_tags,
    "attributes": check_attributes,
    "metadata": check_object,
    "consent": check_consent,
}
