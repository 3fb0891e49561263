"""Named statements: parameters become numbers, values find their places."""

import pytest

from clarion.store.statement import Step, statement

INSERT = statement("insert", "INSERT INTO t (a, b) VALUES (:a, :b) RETURNING a")
UPDATE = statement("update", "UPDATE t SET a = :a, b = :a WHERE c = :c AND d = :a")


def test_parameters_are_numbered_in_the_order_of_their_first_appearance() -> None:
    assert UPDATE.text == "UPDATE t SET a = $1, b = $1 WHERE c = $2 AND d = $1"
    assert UPDATE.names == ("a", "c")


def test_a_cast_is_no_parameter() -> None:
    assert statement("cast", "SELECT :a::int, b::text").text == "SELECT $1::int, b::text"


def test_white_space_is_made_one() -> None:
    assert statement("white", "SELECT\n   :a\n  FROM  t").text == "SELECT $1 FROM t"


@pytest.mark.parametrize(
    ("sql", "returns_rows"),
    [
        ("SELECT 1", True),
        ("select 1", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x", True),
        ("INSERT INTO t (a) VALUES (1) RETURNING a", True),
        ("INSERT INTO t (a) VALUES (1)", False),
        ("UPDATE t SET returning_soon = 1", False),
        ("INSERT INTO t SELECT 1", False),
    ],
)
def test_what_returns_rows_is_known_from_the_text(sql: str, *, returns_rows: bool) -> None:
    assert statement("any", sql).returns_rows is returns_rows


def test_values_are_put_in_the_order_of_the_parameters() -> None:
    assert UPDATE.bind(c=1, a=2) == (2, 1)
    assert statement("one", "SELECT :a").bind(a=None) == (None,)
    assert statement("none", "SELECT 1").bind() == ()


@pytest.mark.parametrize("values", [{}, {"a": 1}, {"a": 1, "b": 2, "x": 3}])
def test_too_few_or_too_many_values_are_named(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match=r"insert: missing \[.*\], unknown \[.*\]"):
        INSERT.bind(**values)


def test_a_value_by_another_name_is_refused() -> None:
    with pytest.raises(KeyError, match="b"):
        INSERT.bind(a=1, x=2)


def test_a_step_runs_once() -> None:
    assert INSERT.step(a=1, b=2) == Step(INSERT, ((1, 2),), is_guard=False)


def test_a_guard_is_a_step_that_can_refuse() -> None:
    assert INSERT.guard(a=1, b=2) == Step(INSERT, ((1, 2),), is_guard=True)


def test_a_guard_must_return_rows() -> None:
    with pytest.raises(TypeError, match="update: a guard needs RETURNING"):
        UPDATE.guard(a=1, c=2)


def test_many_takes_rows_as_they_are_bound() -> None:
    rows = [INSERT.bind(a=i, b=i) for i in range(3)]
    assert INSERT.many(rows) == Step(INSERT, rows, is_guard=False)


def test_two_statements_with_the_same_text_are_two() -> None:
    assert statement("a", "SELECT 1") != statement("a", "SELECT 1")
