"""One-line publishing: text with headers and parameters, or JSON → a publication.

The names are those that users of ntfy know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Annotated, Any, NamedTuple, NoReturn
from urllib.parse import parse_qsl

import msgspec

from clarion.catalog.model import Priority
from clarion.errors import FieldFault, InvalidFields
from clarion.fields import (
    CONTROLS,
    NO_CONTROLS,
    REFUSED_SCHEMES,
    VISIBLE,
    Link,
    check_link,
    check_topic,
    documented,
    instead,
    is_plain,
)
from clarion.http.asgi import is_json
from clarion.http.bodies import Body, collect
from clarion.http.decoding import decode
from clarion.http.encoded_words import read_text

MESSAGE_LIMIT_BYTES = 4_096
TITLE_LENGTH = 256
CLICK_LENGTH = 2_048
TAGS_LIMIT = 20
TAG_LENGTH = 64
# What an empty body says, as in ntfy.
EMPTY = "triggered"
_PARAMETERS_LIMIT = 50
_NAME_SHOWN = 60
# By field: the names that it may have in a header (also with `X-`) or in the query.
_NAMES = {
    "message": ("message", "m"),
    "title": ("title", "t"),
    "priority": ("priority", "prio", "p"),
    "tags": ("tags", "tag", "ta"),
    "click": ("click",),
}
_FIELD_OF = {name: field for field, names in _NAMES.items() for name in names}
_PEOPLE_CHOOSE = "is not supported: the preferences of each follower choose the channels"
# Ignoring these would publish something else than was asked for.
_UNSUPPORTED = {
    **dict.fromkeys(
        ("delay", "at", "in"),
        "is not supported: schedule an event for the topic with POST /v1/events instead",
    ),
    **dict.fromkeys(
        ("attach", "filename"), "is not supported: send a link to the file with `Click`"
    ),
    "actions": "is not supported: send one link with `Click`",
    **dict.fromkeys(("email", "call"), _PEOPLE_CHOOSE),
}
PRIORITIES = {
    **dict.fromkeys(("1", "min", "2", "low"), Priority.LOW),
    **dict.fromkeys(("3", "default", "medium"), Priority.MEDIUM),
    **dict.fromkeys(("4", "high"), Priority.HIGH),
    **dict.fromkeys(("5", "max", "urgent", "critical"), Priority.CRITICAL),
}
_IS_PRIORITY = instead(
    anyOf=[
        {"type": "string", "enum": list(PRIORITIES)},
        {"type": "integer", "minimum": 1, "maximum": 5},
        {"type": "null"},
    ]
)
# Browsers send this header of RFC 9218 by themselves: `u=1, i`.
_HTTP_PRIORITY = re.compile(rb"(u=[0-7]|i(=\?[01])?)(\s*,\s*(u=[0-7]|i(=\?[01])?))*")


_ONE_TAG = rf"[^,{CONTROLS}]{{0,{TAG_LENGTH}}}"
# For the OpenAPI document.
TAGS = f"^{_ONE_TAG}(,{_ONE_TAG}){{0,{TAGS_LIMIT - 1}}}$"
_Tag = Annotated[str, documented(maxLength=TAG_LENGTH, pattern=NO_CONTROLS)]
_Tags = Annotated[str, documented(pattern=TAGS)]


class PublicationBody(Body):
    """What to publish, as JSON. Missing fields are taken from headers and parameters."""

    message: Annotated[str, msgspec.Meta(max_length=MESSAGE_LIMIT_BYTES)] | None = None
    """The text, at most 4,096 bytes. By default `triggered`."""
    title: (
        Annotated[
            str, msgspec.Meta(min_length=1, max_length=TITLE_LENGTH), documented(pattern=VISIBLE)
        ]
        | None
    ) = None
    """The title, in one line. By default the name of the topic."""
    priority: Annotated[str | int | None, _IS_PRIORITY] = None
    """From 1 (min) to 5 (urgent), as in ntfy. By default that of the type `TOPIC_MESSAGE`."""
    tags: Annotated[list[_Tag], msgspec.Meta(max_length=TAGS_LIMIT)] | _Tags | None = None
    """Tags, in a list or with commas between them. Those that name an emoji are shown as one."""
    click: Annotated[Link, msgspec.Meta(min_length=1, max_length=CLICK_LENGTH)] | None = None
    """The link that opens when the notification is clicked."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """A message to everybody and everything that follows a topic."""

    topic: str
    message: str
    title: str | None = None
    priority: Priority | None = None
    tags: tuple[str, ...] = ()
    click: str | None = None


class _Given(NamedTuple):
    """A field, the header, parameter or field of JSON that gives it, and how to read it."""

    field: str
    place: str
    read: Callable[[], Any]


_BODY = msgspec.json.Decoder(PublicationBody)


def read_publication(
    topic: str,
    headers: Mapping[bytes, bytes],
    query: bytes,
    body: bytes,
    refused_schemes: Collection[str] = REFUSED_SCHEMES,
) -> Publication:
    """Return what a request publishes; `InvalidFields` names every fault by where it was given.

    If a value is given more than once, the body takes precedence, then headers, then the query.
    """
    checks_of: dict[str, Callable[[Any], object]] = {
        **_CHECKS,
        "click": partial(_check_click, refused_schemes),
    }
    places: dict[str, str] = {}
    checks: dict[str, Callable[[], object]] = {"topic": partial(check_topic, topic)}
    sources = (_read_body(headers, body), _read_headers(headers), _read_query(query))
    for field, place, read in chain.from_iterable(sources):
        if places.setdefault(field, place) == place:
            checks[place] = partial(_check, checks_of.get(field), read)
    values = collect(checks)
    given = {field: values[place] for field, place in places.items()}
    return Publication(topic=topic, **{"message": EMPTY, **given})


def _read_body(headers: Mapping[bytes, bytes], body: bytes) -> Iterator[_Given]:
    if is_json(headers):
        sent = decode(_BODY, body)
        for field in _NAMES:
            if (value := getattr(sent, field)) is not None:
                yield _Given(field, field, partial(_keep, value))
    elif body.strip():
        yield _Given("message", "body", partial(_decode_text, body))


def _read_headers(headers: Mapping[bytes, bytes]) -> Iterator[_Given]:
    for raw, value in headers.items():
        place = raw.decode("latin-1")
        name = place.removeprefix("x-")
        is_of_http = name == "priority" and _HTTP_PRIORITY.fullmatch(value.strip())
        if value.strip() and not is_of_http:
            yield from _name(name, place.title(), partial(read_text, value))


def _read_query(query: bytes) -> Iterator[_Given]:
    try:
        pairs = parse_qsl(query.decode(), errors="strict", max_num_fields=_PARAMETERS_LIMIT)
    except ValueError:
        reason = f"must have at most {_PARAMETERS_LIMIT} parameters, in UTF-8"
        raise InvalidFields(FieldFault("query", reason)) from None
    for place, value in pairs:
        known = tuple(_name(place.lower(), place, partial(_keep, value)))
        yield from known or (_Given(place, place[:_NAME_SHOWN], _refuse_parameter),)


def _name(name: str, place: str, read: Callable[[], Any]) -> Iterator[_Given]:
    if name in _FIELD_OF:
        yield _Given(_FIELD_OF[name], place, read)
    elif name in _UNSUPPORTED:
        yield _Given(place, place, partial(_refuse, _UNSUPPORTED[name]))


def _keep(value: Any) -> Any:
    return value


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


def _refuse_parameter() -> NoReturn:
    raise ValueError(f"there is no such parameter; there are {', '.join(_NAMES)}")


def _check(check: Callable[[Any], object] | None, read: Callable[[], Any]) -> object:
    value = read()
    return value if check is None else check(value)


def _decode_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ValueError("must be text in UTF-8") from None


def _check_message(text: str) -> str:
    text = text.strip()
    if len(text.encode()) > MESSAGE_LIMIT_BYTES:
        raise ValueError(f"must have at most {MESSAGE_LIMIT_BYTES:,} bytes")
    if "\0" in text:
        raise ValueError("must not contain zero characters")
    return text or EMPTY


def _check_title(text: str) -> str:
    return _check_plain(text, TITLE_LENGTH)


def _check_plain(text: str, longest: int) -> str:
    if not is_plain(text):
        raise ValueError("must not contain line breaks or other control characters")
    text = text.strip()
    if not 0 < len(text) <= longest:
        raise ValueError(f"must have 1 to {longest:,} characters")
    return text


def _check_priority(given: str | int) -> Priority:
    found = PRIORITIES.get(str(given).strip().lower())
    if found is None:
        raise ValueError("must be 1 to 5, or one of min, low, default, high, max and urgent")
    return found


def _check_tags(given: str | list[str]) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else given
    tags = tuple(_check_plain(tag, TAG_LENGTH) for tag in parts if tag.strip())
    if len(tags) > TAGS_LIMIT:
        raise ValueError(f"must have at most {TAGS_LIMIT} tags")
    return tuple(dict.fromkeys(tags))


def _check_click(refused_schemes: Collection[str], text: str) -> str:
    if not 0 < len(text) <= CLICK_LENGTH:
        raise ValueError(f"must have 1 to {CLICK_LENGTH:,} characters")
    return check_link(text, refused_schemes)


_CHECKS: dict[str, Callable[[Any], object]] = {
    "message": _check_message,
    "title": _check_title,
    "priority": _check_priority,
    "tags": _check_tags,
}
