"""Random filters, users that some of them select, and the text of a filter."""

from typing import Any

from hypothesis import strategies as st

from clarion.clock import to_rfc3339
from clarion.people.model import User, UserStatus
from clarion.people.segments.filters import (
    CREATED_AT,
    FLAG,
    LAST_SEEN_AT,
    NUMBER,
    TAG,
    TEXT,
    All,
    AnyOf,
    Between,
    Bound,
    Condition,
    Filter,
    Not,
    OneOf,
    Value,
)
from tests.factories import DAY, NOW, make_user

# Few and alike, so that filters find users, and awkward for SQL, JSON and collations.
NAMES = ["plan", "age", "first name", "Ünï", "x'y", '"', "a\\u0000b", "a.b", "%"]
TEXTS = ["", "a", "A", "ä", "b", "a'b", "é", "e", "Z", "10", "9", "\ufffd", "🚀", "x" * 256]
NUMBERS = [0.0, 1.0, -1.0, 0.1, 1e21, -2.5, 9_007_199_254_740_993, 1e-7, 5e200, 1 << 70]
TAGS = ["vip", "VIP", "beta, ü", "'); --", "a", "b"]
LANGUAGES = ["en", "de", "pt-BR"]
TIMEZONES = ["UTC", "Europe/Berlin"]
TIMES = [NOW + n * DAY for n in range(4)]
# Values that have no term, and texts that are longer than what is indexed.
ODD: list[Any] = [None, [1], {"a": 1}, 10**400, "x" * 300, "a\x00b", 1e300]

attribute_values = st.one_of(
    st.sampled_from(TEXTS), st.sampled_from(NUMBERS), st.booleans(), st.sampled_from(ODD)
)


@st.composite
def users(draw: st.DrawFn, user_id: str) -> User:
    return make_user(
        user_id,
        language=draw(st.sampled_from(LANGUAGES)),
        timezone=draw(st.sampled_from(TIMEZONES)),
        status=draw(st.sampled_from([*[UserStatus.ACTIVE] * 4, UserStatus.INACTIVE])),
        tags=tuple(draw(st.lists(st.sampled_from(TAGS), max_size=3, unique=True))),
        attributes=draw(st.dictionaries(st.sampled_from(NAMES), attribute_values, max_size=5)),
        created_at=draw(st.sampled_from(TIMES)),
        last_seen_at=draw(st.sampled_from([None, *TIMES])),
        deleted_at=draw(st.sampled_from([*[None] * 5, NOW])),
    )


def one_of(term: str, values: list[Any]) -> st.SearchStrategy[OneOf]:
    chosen = st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
    return chosen.map(lambda found: OneOf(term, tuple(sorted(found))))


def between(term: str, values: list[Any]) -> st.SearchStrategy[Between]:
    bounds = st.builds(Bound, st.sampled_from(values), st.booleans())
    low = bounds.map(lambda bound: Between(term, low=bound))
    return low | bounds.map(lambda bound: Between(term, high=bound))


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    name = draw(st.sampled_from(NAMES))
    numbers = [float(number) for number in NUMBERS]
    times = [float(time) for time in TIMES]
    found: Condition = draw(
        st.one_of(
            one_of("language", LANGUAGES),
            one_of("timezone", TIMEZONES),
            one_of("status", ["active", "inactive"]),
            one_of(TAG, TAGS),
            one_of(CREATED_AT, times),
            between(CREATED_AT, times),
            one_of(LAST_SEEN_AT, times),
            between(LAST_SEEN_AT, times),
            one_of(TEXT + name, TEXTS),
            between(TEXT + name, TEXTS),
            one_of(NUMBER + name, numbers),
            between(NUMBER + name, numbers),
            one_of(FLAG + name, [0.0, 1.0]),
        )
    )
    return found


filters: st.SearchStrategy[Filter] = st.recursive(
    conditions(),
    lambda parts: st.one_of(
        parts.map(Not),
        st.lists(parts, min_size=2, max_size=3).map(lambda found: All(tuple(found))),
        st.lists(parts, min_size=2, max_size=3).map(lambda found: AnyOf(tuple(found))),
    ),
    max_leaves=8,
)


def write(of: Filter) -> str:
    """Return the text of a filter."""
    match of:
        case OneOf(term, values):
            listed = ", ".join(write_value(term, value) for value in values)
            return f"{write_field(term)} in ({listed})"
        case Between(term, Bound() as low, None):
            value = write_value(term, low.value)
            return f"{write_field(term)} {'>=' if low.is_included else '>'} {value}"
        case Between(term, None, Bound() as high):
            value = write_value(term, high.value)
            return f"{write_field(term)} {'<=' if high.is_included else '<'} {value}"
        case Not(part):
            return f"not ({write(part)})"
        case All(parts):
            return " and ".join(f"({write(part)})" for part in parts)
        case AnyOf(parts):
            return " OR ".join(f"({write(part)})" for part in parts)
        case _:
            raise AssertionError(of)


def write_field(term: str) -> str:
    kind, _, name = term.partition(".")
    return f"attributes.{quote(name)}" if name else kind


def write_value(term: str, value: Value) -> str:
    if isinstance(value, str):
        return quote(value)
    if term in (CREATED_AT, LAST_SEEN_AT):
        return quote(to_rfc3339(int(value)))
    if term.startswith(FLAG):
        return "true" if value else "false"
    return repr(value)


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
