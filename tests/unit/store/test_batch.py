"""How a batch is arranged, and what a report says of each unit."""

from hypothesis import given
from hypothesis import strategies as st

from clarion.store.batch import Done, Failed, Refused, Report, arrange
from clarion.store.statement import Step, Unit, statement

A = statement("a", "INSERT INTO a (x) VALUES (:x) RETURNING x")
B = statement("b", "INSERT INTO b (x) VALUES (:x)")


def unit(*steps: Step) -> Unit:
    return Unit("", steps)


def test_equal_statements_at_one_position_are_one_group() -> None:
    (group,) = arrange([unit(A.step(x=1)), unit(A.step(x=2))])
    assert group.members == [(0, ((1,),)), (1, ((2,),))]
    assert (group.position, group.text, group.returns_rows) == (0, A.text, True)


def test_positions_come_in_order_and_a_short_unit_is_left_out_of_the_later_ones() -> None:
    groups = arrange([unit(A.step(x=1)), unit(B.step(x=2), A.step(x=3))])
    assert [(group.position, group.text) for group in groups] == [
        (0, A.text),
        (0, B.text),
        (1, A.text),
    ]
    assert groups[2].members == [(1, ((3,),))]


def test_a_unit_that_ends_what_others_add_comes_after_all_their_steps() -> None:
    last = unit(B.step(x=1))._replace(is_last=True)
    groups = arrange([last, unit(A.step(x=2), A.step(x=3)), last])
    assert [(group.position, group.text, len(group.members)) for group in groups] == [
        (0, A.text, 1),
        (1, A.text, 1),
        (0, B.text, 2),
    ]
    assert [number for number, _ in groups[-1].members] == [0, 2]


def test_a_guard_and_a_plain_step_of_one_statement_are_two_groups() -> None:
    groups = arrange([unit(A.step(x=1)), unit(A.guard(x=2))])
    assert [group.is_guard for group in groups] == [False, True]


def test_units_without_steps_make_no_groups() -> None:
    assert arrange([unit(), unit()]) == []


@given(st.lists(st.lists(st.sampled_from([A, B]), max_size=5), min_size=1, max_size=20))
def test_every_step_is_in_one_group_at_its_own_position(plans: list[list[object]]) -> None:
    units = [unit(*(each.step(x=n) for n, each in enumerate(plan))) for plan in plans]  # type: ignore[attr-defined]
    seen = [
        (index, group.position, group.text, rows)
        for group in arrange(units)
        for index, rows in group.members
    ]
    assert sorted(seen) == sorted(
        (index, position, step.statement.text, step.rows)
        for index, each in enumerate(units)
        for position, step in enumerate(each.steps)
    )


def test_an_empty_report_means_that_all_is_done() -> None:
    units = [unit(), unit(A.step(x=1), B.step(x=2))]
    assert Report().outcomes(units) == [Done(()), Done(((), ()))]


def test_a_report_names_rows_refusals_and_failures_by_unit() -> None:
    units = [unit(A.step(x=1), B.step(x=1), A.step(x=2))] * 4
    report = Report(
        rows={1: {0: [(1,)], 2: [(2,), (3,)]}}, refused={2: 1}, failed={3: (True, "Taken")}
    )
    assert report.outcomes(units) == [
        Done(((), (), ())),
        Done((((1,),), (), ((2,), (3,)))),
        Refused(1),
        Failed(constraint=True, message="Taken"),
    ]


def test_a_unit_that_failed_has_failed_whatever_rows_it_returned() -> None:
    report = Report(rows={0: {0: [(1,)]}}, failed={0: (False, "Bad")})
    assert report.outcomes([unit(A.step(x=1))]) == [Failed(constraint=False, message="Bad")]


def test_what_failed_or_was_refused_is_out() -> None:
    report = Report(refused={1: 0}, failed={2: (True, "Taken")})
    assert [report.is_out(index) for index in range(3)] == [False, True, True]
