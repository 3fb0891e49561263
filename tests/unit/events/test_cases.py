"""Which limits count for a person at an hour."""

from dataclasses import replace

import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import Entry, build_entry
from clarion.catalog.model import Overflow, Priority, RateLimit
from clarion.events.cases import HOUR_MS, Ask, Caps
from clarion.events.model import Content
from tests.factories import NOW

PLAIN = build_entry(replace(built_in.TYPES["POST_LIKE"], rate_limit=None), ())
LIMITED = build_entry(
    replace(PLAIN.type, rate_limit=RateLimit(per_user_per_hour=5, overflow=Overflow.DIGEST)), ()
)
ASK = Ask(
    app_id="a",
    user_id="ana",
    kind=PLAIN,
    priority=Priority.LOW,
    content=Content(),
    channels=(),
    expires_at=None,
    now=NOW,
)


@pytest.mark.parametrize(
    ("caps", "of", "expected"),
    [
        (Caps(), PLAIN, []),
        (Caps(), LIMITED, [(5, Overflow.DIGEST)]),
        (Caps(per_category=7), PLAIN, [(7, Overflow.WAIT)]),
        (Caps(per_user=9), PLAIN, [(9, Overflow.WAIT)]),
        (Caps(7, 9), LIMITED, [(5, Overflow.DIGEST), (7, Overflow.WAIT), (9, Overflow.WAIT)]),
    ],
)
def test_a_type_s_own_limit_is_asked_first(
    caps: Caps, of: Entry, expected: list[tuple[int, Overflow]]
) -> None:
    limits = caps.limits_of(replace(ASK, kind=of))
    assert [(limit.per_hour, limit.overflow) for limit in limits] == expected


def test_what_does_not_count_has_no_limits() -> None:
    assert Caps(7, 9).limits_of(replace(ASK, kind=LIMITED, counts=False)) == ()


def test_each_limit_counts_for_itself() -> None:
    other_kind = build_entry(replace(LIMITED.type, type="OTHER"), ())
    asks = [
        ASK,
        replace(ASK, user_id="bo"),
        replace(ASK, now=NOW + HOUR_MS),
    ]
    every = [limit.id for ask in asks for limit in Caps(7, 9).limits_of(replace(ask, kind=LIMITED))]
    assert len(set(every)) == len(every) == 9
    same = {x.id for x in Caps(7, 9).limits_of(replace(ASK, kind=LIMITED))}
    shared = {x.id for x in Caps(7, 9).limits_of(replace(ASK, kind=other_kind))}
    # Of one category and one person, whatever the type.
    assert len(same & shared) == 2
