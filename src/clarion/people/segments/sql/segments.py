"""Segments in SQL, and the users that a filter selects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from clarion.pages import Page, cut_page
from clarion.people.model import Segment
from clarion.people.segments.filters import NO_ONE, Condition, Filter, list_conditions
from clarion.people.segments.normal_form import normalise
from clarion.people.segments.parser import parse
from clarion.people.segments.plans import (
    SearchPlan,
    choose_plan,
    has_choice,
    leave_out,
    list_positive,
    split_values,
)
from clarion.people.segments.sql import queries
from clarion.people.segments.sql.queries import Parameters
from clarion.people.tables import SEGMENTS
from clarion.store.engine import Engine
from clarion.store.statement import Row, Statement, Unit, statement

SEGMENTS_LIMIT = 200
_SELECT = f"SELECT {SEGMENTS.columns} FROM segments WHERE app_id = :app_id"

# An app that has too many can still replace those that it has.
PUT = statement(
    "put_segment",
    f"""INSERT INTO segments ({SEGMENTS.columns}) SELECT {SEGMENTS.parameters} WHERE :cap >
    (SELECT COUNT(*) FROM segments WHERE app_id = :app_id AND name <> :name)
    ON CONFLICT (app_id, name) DO UPDATE SET {SEGMENTS.assign("filter", "updated_at")}
    RETURNING created_at""",
)
GET = statement("get_segment", f"{_SELECT} AND name = :name")
LIST = statement("list_segments", f"{_SELECT} AND name > :after ORDER BY name LIMIT :limit")
DELETE = statement(
    "delete_segment", "DELETE FROM segments WHERE app_id = :app_id AND name = :name RETURNING name"
)

# A plan is used for this many pages: then another condition may be the rarest.
_PAGES = 100
_PLANS = 1_000


class SearchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is read to find the users of a filter."""

    # How far the users of each condition are counted to find the rarest, until one has fewer. If
    # the steps were larger, it would cost more the more frequent the other conditions are.
    counted: tuple[int, ...] = tuple(1_024 * 2**n for n in range(10))
    # The same for a page, where short reads must not wait: for all conditions together.
    counted_for_page: int = 32_000
    # How many can be read for each page, and sorted.
    sorted: int = 8_000
    # Conditions that are checked for a page, over all of its users; and its least users.
    checks: int = 2_000
    least_users: int = 20


USUAL = SearchLimits()
Fetch = Callable[..., Awaitable[Sequence[Row]]]


@dataclass(slots=True)
class _PagePlan:
    """How the pages of a filter are read: which users are looked up, and what is checked."""

    filter: Filter
    conditions: tuple[Condition, ...] | None
    candidates: int  # in a page
    pages: int = 0


class Segments:
    """The segments of the apps. A name is unique within its app.

    A filter is given as text; `FilterError` if it is not valid. A segment has no users who are
    inactive or deleted. A cursor is the last item of its page.
    """

    def __init__(self, engine: Engine, limits: SearchLimits = USUAL) -> None:
        self._engine = engine
        self._limits = limits
        self._plans: dict[tuple[str, str], _PagePlan] = {}

    async def put(self, segment: Segment) -> tuple[Segment, bool] | None:
        """Create or replace a segment; return the stored one and whether it is new.

        It keeps its `created_at`. None, with nothing stored, if the app has too many.
        """
        step = PUT.guard(**SEGMENTS.values(segment), cap=SEGMENTS_LIMIT)
        done = await self._engine.write(Unit(segment.name, (step,), segment.app_id))
        if done is None:
            return None
        created_at = done[0][0][0]
        return replace(segment, created_at=created_at), created_at == segment.created_at

    async def get(self, app_id: str, name: str) -> Segment | None:
        return SEGMENTS.first(await self._engine.fetch(GET, app_id=app_id, name=name))

    async def list(self, app_id: str, *, after: str | None, limit: int) -> Page[Segment]:
        """Return the segments of an app, sorted by name."""
        rows = await self._engine.fetch(LIST, app_id=app_id, after=after or "", limit=limit + 1)
        return cut_page([*map(SEGMENTS.read, rows)], limit, lambda each: each.name)

    async def delete(self, app_id: str, name: str) -> bool:
        """Delete a segment; False if there is none. Events that were accepted keep its filter."""
        step = DELETE.guard(app_id=app_id, name=name)
        return await self._engine.write(Unit(name, (step,), app_id)) is not None

    async def count(self, app_id: str, filter_text: str) -> int:
        """Return how many users a filter selects.

        The effort depends on how many users match its rarest condition, not on all that there
        are. `ReadTooSlow` if even that takes too long.
        """
        of = normalise(parse(filter_text))
        if of == NO_ONE:
            return 0
        fetch = self._engine.fetch_slowly
        choices = list_positive(of) if has_choice(of) else ()
        plan = await _make_plan(fetch, app_id, of, choices, self._limits.counted)
        given = Parameters(app_id=app_id)
        rest = leave_out(of, plan.conditions)
        found = queries.count_users(given, rest, plan.conditions)
        rows = await fetch(found, **given.values)
        return int(rows[0][0])

    async def has_user(self, app_id: str, filter_text: str, user_id: str) -> bool:
        """Return whether a filter selects a user."""
        given = Parameters(app_id=app_id, user_id=user_id)
        found = queries.check_user(given, normalise(parse(filter_text)))
        return (await self._engine.fetch(found, **given.values))[0][0] is not None

    async def list_users(
        self, app_id: str, filter_text: str, *, after: str | None, limit: int
    ) -> Page[str]:
        """Return the ids of the users that a filter selects, sorted.

        A page may have fewer than `limit`, even none, and a cursor: each costs a bounded effort.
        """
        plan = await self._plan_pages(app_id, filter_text)
        if plan.filter == NO_ONE:
            return Page((), None)
        size = min(limit, plan.candidates)
        given = Parameters(app_id=app_id, after=after or "", limit=size)
        found = queries.list_users(given, plan.filter, plan.conditions)
        rows = await self._engine.fetch(found, **given.values)
        items = tuple(user_id for user_id, is_member in rows if is_member)
        return Page(items, rows[-1][0] if len(rows) == size else None)

    async def _plan_pages(self, app_id: str, filter_text: str) -> _PagePlan:
        plan = self._plans.get((app_id, filter_text))
        if plan is None or plan.pages >= _PAGES:
            plan = await self._make_page_plan(app_id, normalise(parse(filter_text)))
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[app_id, filter_text] = plan
        plan.pages += 1
        return plan

    async def _make_page_plan(self, app_id: str, of: Filter) -> _PagePlan:
        limits, choices = self._limits, list_positive(of)
        least = limits.counted[0]
        caps = (least, max(least, limits.counted_for_page // max(1, len(choices))))
        plan = await _make_plan(self._engine.fetch, app_id, of, choices, caps)
        rest, conditions = leave_out(of, plan.conditions), plan.conditions
        # What reached the cap may be any number.
        if conditions is not None and plan.cost >= min(limits.sorted, caps[-1]):
            conditions = split_values(conditions)
            rest = of if conditions is None else rest
        effort = len(tuple(list_conditions(rest))) + len(conditions or ())
        candidates = max(limits.least_users, limits.checks // (effort + 1))
        return _PagePlan(rest, conditions, candidates)


async def _make_plan(
    fetch: Fetch, app_id: str, of: Filter, choices: Sequence[Condition], caps: Sequence[int]
) -> SearchPlan:
    """Return the plan by the rarest conditions.

    All are counted up to a cap. If that is not enough to know the rarest, they are counted further.
    """
    counts: dict[Condition, int] = {}
    plan = choose_plan(of, counts)
    known = 0
    for cap in caps:
        pending = [each for each in choices if counts.get(each, known) >= known]
        if not pending:
            break
        given = Parameters(app_id=app_id, cap=cap)
        counting: Statement = queries.count_each(given, pending)
        (row,) = await fetch(counting, **given.values)
        counts |= dict(zip(pending, row, strict=True))
        plan, known = choose_plan(of, counts), cap
        if plan.cost < cap:
            break
    return plan
