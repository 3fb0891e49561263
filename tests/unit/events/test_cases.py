"""Which limits apply to a user in an hour."""

import pytest

from clarion.catalog import built_in
from clarion.catalog.entry import CatalogEntry, build_entry
from clarion.catalog.model import Overflow, Priority, RateLimit
from clarion.events.cases import HOUR_MS, DecisionRequest, FrequencyCaps
from clarion.history.model import Content
from tests.factories import NOW
from tests.replacing import replace
from tests.sandbox import run_directly

PLAIN = build_entry(replace(built_in.TYPES["POST_LIKE"], rate_limit=None), (), run_directly)
LIMITED = build_entry(
    replace(PLAIN.type, rate_limit=RateLimit(per_user_per_hour=5, overflow=Overflow.DIGEST)),
    (),
    run_directly,
)
REQUEST = DecisionRequest(
    app_id="a",
    user_id="ana",
    entry=PLAIN,
    priority=Priority.LOW,
    content=Content(),
    channels=(),
    expires_at=None,
    now=NOW,
)


@pytest.mark.parametrize(
    ("caps", "of", "expected"),
    [
        (FrequencyCaps(), PLAIN, []),
        (FrequencyCaps(), LIMITED, [(5, Overflow.DIGEST)]),
        (FrequencyCaps(per_category=7), PLAIN, [(7, Overflow.WAIT)]),
        (FrequencyCaps(per_user=9), PLAIN, [(9, Overflow.WAIT)]),
        (
            FrequencyCaps(7, 9),
            LIMITED,
            [(5, Overflow.DIGEST), (7, Overflow.WAIT), (9, Overflow.WAIT)],
        ),
    ],
)
def test_the_limit_of_the_type_comes_first(
    caps: FrequencyCaps, of: CatalogEntry, expected: list[tuple[int, Overflow]]
) -> None:
    limits = caps.limits_of(replace(REQUEST, entry=of))
    assert [(limit.per_hour, limit.overflow) for limit in limits] == expected


def test_an_unlimited_request_has_no_limits() -> None:
    assert FrequencyCaps(7, 9).limits_of(replace(REQUEST, entry=LIMITED, is_limited=False)) == ()


def test_each_limit_counts_for_itself() -> None:
    other_type = build_entry(replace(LIMITED.type, type="OTHER"), (), run_directly)
    requests = [
        REQUEST,
        replace(REQUEST, user_id="bo"),
        replace(REQUEST, now=NOW + HOUR_MS),
    ]
    every = [
        limit.id
        for request in requests
        for limit in FrequencyCaps(7, 9).limits_of(replace(request, entry=LIMITED))
    ]
    assert len(set(every)) == len(every) == 9
    same = {x.id for x in FrequencyCaps(7, 9).limits_of(replace(REQUEST, entry=LIMITED))}
    shared = {x.id for x in FrequencyCaps(7, 9).limits_of(replace(REQUEST, entry=other_type))}
    # Those of the category and of the user are shared by the types.
    assert len(same & shared) == 2
