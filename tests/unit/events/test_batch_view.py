"""A case of a batch is seen as the outcomes before it will leave it."""

from clarion.catalog import built_in
from clarion.catalog.entry import build_entry
from clarion.catalog.model import Overflow, Priority
from clarion.events.batch_view import BatchView
from clarion.events.cases import DecisionRequest, PreparedCase
from clarion.events.decide.case import Case, Limit
from clarion.events.model import (
    DedupeClaim,
    EarlierNotification,
    Job,
    JobKind,
    JobOutcome,
    LimitClaim,
)
from clarion.history.model import Content
from clarion.inbox.model import InboxUpdate
from tests.factories import NOW
from tests.sandbox import run_directly

ENTRY = build_entry(built_in.TYPES["POST_LIKE"], (), run_directly)
JOB = Job("j", Priority.LOW, NOW, JobKind.DECIDE, "a", "e", "ana")
EARLIER = EarlierNotification(notification_id="n", count=3, is_unread=True)


def prepare(
    earlier: EarlierNotification | None = None, key: str | None = "p1", used: int = 0
) -> PreparedCase:
    request = DecisionRequest(
        app_id="a",
        user_id="ana",
        entry=ENTRY,
        priority=Priority.LOW,
        content=Content(),
        channels=(),
        expires_at=None,
        dedupe_key=key,
        now=NOW,
    )
    case = Case(
        now=NOW,
        type=ENTRY.type,
        priority=Priority.LOW,
        channels=(),
        templates=frozenset(),
        available=frozenset(),
        expires_at=None,
        user=None,
        earlier=earlier,
        limits=(Limit("l", 5, Overflow.DROP, used),),
    )
    return PreparedCase(request, case)


def inbox_update(count: int) -> JobOutcome:
    content = Content()
    update = InboxUpdate(
        id="n", title=None, body="x", content=content, count=count, expected_count=0, is_new=False
    )
    return JobOutcome(job=JOB, inbox_update=update)


def test_the_first_case_is_unchanged() -> None:
    first = prepare(EARLIER)
    assert BatchView().project(first) is first


def test_the_next_case_has_the_count_that_the_one_before_leads_to() -> None:
    batch = BatchView()
    batch.add(prepare(EARLIER).request, inbox_update(4))
    seen = batch.project(prepare(EARLIER))
    assert seen is not None
    assert seen.case.earlier is not None
    assert seen.case.earlier.count == 4


def test_a_case_that_depends_on_a_new_notification_waits() -> None:
    batch = BatchView()
    key = prepare().request.dedupe_id or ""
    claim = DedupeClaim(id=key, notification_id="n", expected_holder=None, expires_at=NOW)
    batch.add(prepare().request, JobOutcome(job=JOB, dedupe_claim=claim))
    assert batch.project(prepare()) is None
    other = prepare(key="p2")
    assert batch.project(other) is other


def test_uses_of_a_limit_add_up() -> None:
    batch = BatchView()
    request = prepare(key=None).request
    use = LimitClaim(id="l", limit=5, expires_at=NOW)
    for _ in range(2):
        batch.add(request, JobOutcome(job=JOB, limit_claims=(use,)))
    seen = batch.project(prepare(key=None, used=1))
    assert seen is not None
    assert [limit.used for limit in seen.case.limits] == [3]


def test_a_dropped_event_changes_nothing() -> None:
    batch = BatchView()
    batch.add(prepare(EARLIER).request, JobOutcome(job=JOB))
    again = prepare(EARLIER)
    assert batch.project(again) is again
