"""What those before it in a batch will have changed."""

from clarion.catalog import built_in
from clarion.catalog.entry import build_entry
from clarion.catalog.model import Overflow, Priority
from clarion.events.batch_view import Foresight
from clarion.events.cases import Ask, Brief
from clarion.events.decide.case import Case, Limit
from clarion.events.model import (
    Content,
    DedupeClaim,
    Earlier,
    Entry,
    InboxUpdate,
    Job,
    JobKind,
    LimitClaim,
)
from tests.factories import NOW

KIND = build_entry(built_in.TYPES["POST_LIKE"], ())
JOB = Job("j", Priority.LOW, NOW, JobKind.DECIDE, "a", "e", "ana")
EARLIER = Earlier(notification_id="n", count=3, is_unread=True)


def brief(earlier: Earlier | None = None, key: str | None = "p1", used: int = 0) -> Brief:
    ask = Ask(
        app_id="a",
        user_id="ana",
        kind=KIND,
        priority=Priority.LOW,
        content=Content(),
        channels=(),
        expires_at=None,
        dedupe_key=key,
        now=NOW,
    )
    case = Case(
        now=NOW,
        type=KIND.type,
        priority=Priority.LOW,
        channels=(),
        templates=frozenset(),
        available=frozenset(),
        expires_at=None,
        person=None,
        earlier=earlier,
        limits=(Limit("l", 5, Overflow.DROP, used),),
    )
    return Brief(ask, None, case, earlier)


def inbox_update(count: int) -> Entry:
    content = Content()
    told = InboxUpdate(
        id="n", title=None, body="x", content=content, count=count, seen=0, is_first=False
    )
    return Entry(job=JOB, inbox_update=told)


def test_the_first_is_seen_as_it_is() -> None:
    first = brief(EARLIER)
    assert Foresight().see(first) is first


def test_the_next_sees_the_count_that_the_one_before_will_have_made() -> None:
    foresight = Foresight()
    foresight.note(brief(EARLIER).ask, inbox_update(4))
    seen = foresight.see(brief(EARLIER))
    assert seen is not None
    assert seen.earlier is not None
    assert (seen.earlier.count, seen.case.earlier) == (4, seen.earlier)


def test_what_depends_on_something_that_is_yet_to_be_made_waits() -> None:
    foresight = Foresight()
    key = brief().ask.dedupe_id or ""
    claim = DedupeClaim(id=key, notification_id="n", seen=None, expires_at=NOW)
    foresight.note(brief().ask, Entry(job=JOB, dedupe=claim))
    assert foresight.see(brief()) is None
    other = brief(key="p2")
    assert foresight.see(other) is other


def test_uses_of_a_limit_add_up() -> None:
    foresight = Foresight()
    ask = brief(key=None).ask
    use = LimitClaim(id="l", limit=5, expires_at=NOW)
    for _ in range(2):
        foresight.note(ask, Entry(job=JOB, limits=(use,)))
    seen = foresight.see(brief(key=None, used=1))
    assert seen is not None
    assert [limit.used for limit in seen.case.limits] == [3]


def test_what_was_dropped_changes_nothing() -> None:
    foresight = Foresight()
    foresight.note(brief(EARLIER).ask, Entry(job=JOB))
    again = brief(EARLIER)
    assert foresight.see(again) is again
