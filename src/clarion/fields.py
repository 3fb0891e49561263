"""Rules for values that several slices take: user ids, topics, languages, time zones, links, text.

Each check returns the value as it is stored, or raises `ValueError` with the reason.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
import zoneinfo
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from clarion.errors import FieldFault, InvalidFields

T = TypeVar("T")
R = TypeVar("R")

# With these a link runs code in the page that shows it, or reads local files.
REFUSED_SCHEMES = (
    "javascript",
    "data",
    "vbscript",
    "file",
    "blob",
    "filesystem",
    "about",
    "view-source",
    "jar",
)
_IMAGE_SCHEMES = frozenset({"http", "https"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Of JSON that apps send. The encoders recurse, and fail near a thousand levels.
NESTING_LIMIT = 64
_TOO_DEEP = f"must be nested at most {NESTING_LIMIT} levels deep"
_BESIDE_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^"\[\]{}]+')
# One level down is 2, one up is 0.
_STEPS = bytes.maketrans(b"[{]}", bytes((2, 2, 0, 0)))
USER_ID = r"[A-Za-z0-9._~:@=+|-]{1,128}"
_USER_ID = re.compile(USER_ID)
_TOPIC = re.compile(r"[A-Za-z0-9._~:=-]{1,200}")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LANGUAGE = re.compile(
    r"(?P<language>[a-z]{2,3})(?:-(?P<script>[a-z]{4}))?(?:-(?P<region>[a-z]{2}|[0-9]{3}))?"
    r"(?P<rest>(?:-[a-z0-9]{4,8}){0,2})",
    re.IGNORECASE | re.ASCII,
)
# Control characters, one of which PostgreSQL cannot store, and lone surrogates, which no encoding
# can represent.
_NOT_PLAIN = frozenset({"Cc", "Cs"})
# Scans a directory, which takes 34 ms: too slow to do while requests wait.
_TIMEZONES = frozenset(zoneinfo.available_timezones())

# Of names that are suggested for one that is not known.
_LONGEST_SUGGESTED = 100
_LENGTHS_APART = 2
_COMPARED = 200
_SIMILAR = 0.75

# The key of a schema that replaces the one it is in.
INSTEAD = "x-instead"
# Patterns for JSON Schema.
CONTROLS = r"\u0000-\u001f\u007f-\u009f"
NO_CONTROLS = rf"^[^{CONTROLS}]*$"
# PostgreSQL stores no zero characters.
NO_ZEROS = r"^[^\u0000]*$"
# Not only of spaces, either.
VISIBLE = rf"^[^{CONTROLS}]*[^\s{CONTROLS}][^{CONTROLS}]*$"
VISIBLE_OR_NOTHING = rf"^(?:{VISIBLE[1:-1]})?$"
LINK = rf"^(?:[^\s{CONTROLS}](?:[^{CONTROLS}]*[^\s{CONTROLS}])?)?$"
_IMAGE_LINK = rf"^(?=[hH][tT][tT][pP][sS]?:|(?![A-Za-z][A-Za-z0-9+.-]*:)){LINK[1:]}"


def documented(**schema: Any) -> Meta:
    """Return the description of a value in the OpenAPI document, in addition to its type.

    It restricts nothing: separate checks do, with better error messages.
    """
    return Meta(extra_json_schema=schema)


def instead(**schema: Any) -> Meta:
    """Return what the document says of a value in place of its type."""
    return Meta(extra_json_schema={INSTEAD: schema})


def _write_pattern(rule: re.Pattern[str]) -> str:
    """Return a regular expression without names and flags, for JSON Schema."""
    plain = re.sub(r"\?P<[a-z]+>", "?:", rule.pattern)
    return f"^{plain.replace('a-z', 'A-Za-z')}$"


# The types of parameters and fields, as the OpenAPI document describes them.
UserId = Annotated[
    str,
    Meta(
        description="The id that your application gives the user.",
        examples=["ana"],
        extra_json_schema={"pattern": f"^{USER_ID}$"},
    ),
]
TopicName = Annotated[
    str,
    Meta(
        description="The name of the topic.",
        examples=["releases"],
        extra_json_schema={"pattern": f"^{_TOPIC.pattern}$"},
    ),
]
SegmentName = Annotated[
    str,
    Meta(
        description="The name of the segment.",
        examples=["vip-germany"],
        extra_json_schema={"pattern": f"^{_SEGMENT.pattern}$"},
    ),
]
LanguageTag = Annotated[
    str,
    Meta(
        description="A language tag, like pt-BR.",
        examples=["de"],
        extra_json_schema={"pattern": _write_pattern(_LANGUAGE)},
    ),
]
TimezoneName = Annotated[
    str, Meta(description="An IANA time zone name, like Europe/Berlin.", examples=["Europe/Berlin"])
]
# A time with its offset.
Moment = Annotated[datetime, documented(format="date-time")]
Link = Annotated[str, documented(pattern=LINK)]
ImageUrl = Annotated[str, documented(pattern=_IMAGE_LINK)]
Label = Annotated[str, documented(minLength=1, maxLength=100, pattern=NO_CONTROLS)]
EventId = Annotated[
    str, Meta(description="The id of the event, from the response that accepted it.")
]
NotificationId = Annotated[
    str, Meta(description="The id of the notification, from the inbox or a list of notifications.")
]
DeviceId = Annotated[str, Meta(description="The id of the device, from its registration.")]
AppId = Annotated[str, Meta(description="The id of the app, as the list of apps shows it.")]


def is_user_id(text: str) -> bool:
    """Whether a user can have this id."""
    return _USER_ID.fullmatch(text) is not None


def check_user_id(text: str) -> str:
    if not is_user_id(text):
        raise ValueError("must have 1 to 128 letters, digits or . _ ~ : @ = + | -")
    return text


def explain_missing_user(user_id: str) -> str:
    return f"This app has no user {user_id}. Create the user with PUT /v1/users/{user_id}."


def check_topic(text: str) -> str:
    """Return the name of a topic that users follow or devices subscribe to."""
    if not _TOPIC.fullmatch(text):
        raise ValueError("must have 1 to 200 letters, digits or . _ ~ : = -")
    return text


def check_segment(text: str) -> str:
    """Return the name of a segment."""
    if not _SEGMENT.fullmatch(text):
        raise ValueError("must have 1 to 64 letters, digits or . _ -")
    return text


def check_language(text: str) -> str:
    """Return a language tag in its canonical case: pt-BR."""
    found = _LANGUAGE.fullmatch(text)
    if not found:
        raise ValueError("must be a language tag, like en or pt-BR")
    script, region = found["script"], found["region"]
    parts = [found["language"].lower(), script and script.title(), region and region.upper()]
    return "-".join(part for part in parts if part) + found["rest"].lower()


def check_timezone(text: str) -> str:
    if text not in _TIMEZONES:
        raise ValueError("must be an IANA time zone name, like Europe/Berlin")
    return text


def check_link(text: str, refused_schemes: Collection[str]) -> str:
    """Return a link: a URL of any scheme but the refused ones, or a relative one."""
    scheme = _read_scheme(text)
    if scheme in refused_schemes:
        raise ValueError(f"must not be a {scheme}: link")
    return text


def check_image_url(text: str) -> str:
    """Return the URL of an image, which may be relative."""
    if _read_scheme(text) not in (None, *_IMAGE_SCHEMES):
        raise ValueError("must be an https: or http: URL")
    return text


def _read_scheme(text: str) -> str | None:
    # Browsers remove control characters, and spaces at both ends, before they read the scheme.
    if not is_plain(text) or text != text.strip():
        raise ValueError("must not contain control characters, or begin or end with a space")
    found = _SCHEME.match(text)
    return found[1].lower() if found else None


def check_value(field: str, check: Callable[[T], R], value: T) -> R:
    """Return the result of a check of a value; `InvalidFields` names the field."""
    try:
        return check(value)
    except ValueError as error:
        raise InvalidFields(FieldFault(field, str(error))) from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean …?" with the known name that is nearest to this one, or nothing."""
    if len(name) > _LONGEST_SUGGESTED:
        return ""
    folded = name.casefold()
    # Comparing takes some microseconds a name: only those of about this length are looked at.
    near = [each for each in known if abs(len(each) - len(name)) <= _LENGTHS_APART]
    near.sort(key=lambda each: each[:1].casefold() != folded[:1])
    by_folded = {each.casefold(): each for each in near[:_COMPARED]}
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=_SIMILAR)
    return f"; did you mean {by_folded[found[0]]}?" if found else ""


def is_plain(text: str) -> bool:
    """Whether every store, log and header can hold the text."""
    return not any(unicodedata.category(character) in _NOT_PLAIN for character in text)


def check_json(value: object, longest_bytes: int) -> bytes:
    """Return a value as JSON, if it is neither too long nor nested too deeply."""
    try:
        encoded = msgspec.json.encode(value)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if len(encoded) > longest_bytes:
        raise ValueError(f"must have at most {longest_bytes:,} bytes as JSON")
    # Almost every value has fewer brackets than that, so that it cannot be deeper.
    if encoded.count(b"{") + encoded.count(b"[") > NESTING_LIMIT:
        steps = _BESIDE_BRACKETS.sub(b"", encoded).translate(_STEPS)
        if max(accumulate(step - 1 for step in steps)) > NESTING_LIMIT:
            raise ValueError(_TOO_DEEP)
    return encoded
