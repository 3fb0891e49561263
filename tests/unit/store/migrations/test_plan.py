"""Which migrations a database lacks, and when it does not match the files."""

import re
from collections.abc import Iterator

import apsw
import pytest

from clarion.errors import MigrationError
from clarion.store.migrations.plan import (
    Migration,
    MigrationStep,
    apply_to_sqlite,
    find_missing,
    load,
    read_from_sqlite,
)

ONE = Migration(1, "one", "CREATE TABLE one (x INTEGER)")
TWO = Migration(2, "two", "CREATE TABLE two (x INTEGER); CREATE TABLE more (x INTEGER)")
THREE = Migration(3, "three", "CREATE TABLE three (x INTEGER)")
AFTER = Migration(3, "three", "DROP TABLE one", MigrationStep.AFTER)
LEFT_OUT = Migration(2, "two", "DROP TABLE one", MigrationStep.AFTER)
BROKEN = Migration(2, "broken", "CREATE TABLE half (x INTEGER); CREATE TABLE half (x INTEGER)")


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    yield connection
    connection.close()


def recorded(*migrations: Migration) -> list[tuple[int, str, str]]:
    return [(each.version, each.checksum, each.step) for each in migrations]


def tables(connection: apsw.Connection) -> set[str]:
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {str(name) for (name,) in names}


def test_an_empty_database_lacks_everything() -> None:
    assert find_missing([ONE, TWO], []) == [ONE, TWO]


def test_an_up_to_date_database_lacks_nothing() -> None:
    assert find_missing([ONE, TWO], recorded(ONE, TWO)) == []


def test_only_what_is_missing_is_applied() -> None:
    assert find_missing([ONE, TWO, THREE], recorded(ONE)) == [TWO, THREE]


def test_a_database_of_a_newer_clarion_is_refused_with_advice() -> None:
    """One that has applied what nodes of this release cannot live with."""
    with pytest.raises(MigrationError, match=r"at migration 3, but this release .* up to 2\. "):
        find_missing([ONE, TWO], recorded(ONE, TWO, AFTER))


def test_a_database_to_which_a_newer_clarion_has_added_something_is_accepted() -> None:
    assert find_missing([ONE, TWO], recorded(ONE, TWO, THREE)) == []


def test_a_migration_without_a_step_as_in_a_backup_counts_as_an_after_step() -> None:
    rows = [each[:2] for each in recorded(ONE, TWO, THREE)]
    assert find_missing([ONE, TWO, THREE], rows) == []
    with pytest.raises(MigrationError, match="at migration 3"):
        find_missing([ONE, TWO], rows)


def test_an_after_step_may_be_missing_before_a_later_migration() -> None:
    assert find_missing([ONE, LEFT_OUT, THREE], recorded(ONE, THREE)) == [LEFT_OUT]


def test_a_file_that_changed_after_it_was_applied_is_refused() -> None:
    changed = Migration(1, "one", ONE.sql + " ")
    with pytest.raises(MigrationError, match=r"0001 one was applied .* with different content"):
        find_missing([changed, TWO], recorded(ONE))


def test_a_database_from_before_the_first_release_is_refused_with_advice() -> None:
    """Its numbers go further than those of this release, and its first file is another."""
    squashed = Migration(1, "schema", "CREATE TABLE one (x INTEGER); CREATE TABLE two (x INTEGER)")
    with pytest.raises(MigrationError, match=r"0001 schema was .* with different content\. .* new"):
        find_missing([squashed], recorded(ONE, TWO, AFTER))


def test_a_database_with_a_migration_that_no_file_has_is_refused() -> None:
    with pytest.raises(
        MigrationError, match="migration 2, which this release of Clarion does not know"
    ):
        find_missing([ONE, THREE], recorded(ONE, TWO, THREE))


def test_a_migration_left_out_before_a_later_one_is_refused() -> None:
    with pytest.raises(MigrationError, match="lacks migration 0002 two, but has later ones"):
        find_missing([ONE, TWO, THREE], recorded(ONE, THREE))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_our_files_are_numbered_from_one_without_gap_or_double(engine: str) -> None:
    versions = [migration.version for migration in load(engine)]
    assert versions == list(range(1, len(versions) + 1))


def test_a_file_in_two_variants_has_the_same_number_and_name_in_both() -> None:
    titles = {engine: [each.title for each in load(engine)] for engine in ("sqlite", "postgres")}
    assert titles["sqlite"] == titles["postgres"]


def test_the_title_is_number_and_name() -> None:
    assert ONE.title == "0001 one"


def test_migrations_are_applied_in_order_and_recorded(connection: apsw.Connection) -> None:
    assert apply_to_sqlite(connection, [ONE, TWO]) == ["0001 one", "0002 two"]
    assert tables(connection) == {"migrations", "one", "two", "more"}
    assert read_from_sqlite(connection) == recorded(ONE, TWO)


def test_a_second_time_there_is_nothing_to_do(connection: apsw.Connection) -> None:
    apply_to_sqlite(connection, [ONE])
    assert apply_to_sqlite(connection, [ONE]) == []
    assert apply_to_sqlite(connection, [ONE, TWO]) == ["0002 two"]


def test_a_migration_that_fails_leaves_the_database_as_before_it(
    connection: apsw.Connection,
) -> None:
    with pytest.raises(apsw.SQLError):
        apply_to_sqlite(connection, [ONE, BROKEN])
    assert tables(connection) == {"migrations", "one"}
    assert apply_to_sqlite(connection, [ONE, TWO]) == ["0002 two"]


def test_a_database_that_is_refused_is_left_alone(connection: apsw.Connection) -> None:
    apply_to_sqlite(connection, [ONE, LEFT_OUT])
    with pytest.raises(MigrationError):
        apply_to_sqlite(connection, [ONE])
    assert not connection.in_transaction


# The first migrations create the schema: no earlier release runs beside them.
SCHEMA = {"tables", "engine_specific"}
NOT_ADDITIVE = re.compile(
    r"\b(DROP|RENAME|TRUNCATE|ALTER\s+COLUMN|SET\s+NOT\s+NULL|DELETE\s+FROM)\b", re.IGNORECASE
)
NEEDS_VALUE = re.compile(r"ADD\s+COLUMN\s+\w+\s+\w+\s+NOT\s+NULL(?!\s+DEFAULT)", re.IGNORECASE)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_what_removes_or_renames_something_is_an_after_step(engine: str) -> None:
    for each in load(engine):
        if each.name not in SCHEMA and each.step is MigrationStep.BEFORE:
            text = re.sub(r"--.*", "", each.sql)
            assert not NOT_ADDITIVE.search(text), each.title
            assert not NEEDS_VALUE.search(text), each.title


def test_the_check_for_additive_files_finds_what_is_not() -> None:
    for text in ("ALTER TABLE a DROP COLUMN b", "alter table a rename to b", "DROP TABLE x"):
        assert NOT_ADDITIVE.search(text)
    assert NEEDS_VALUE.search("ALTER TABLE a ADD COLUMN b TEXT NOT NULL")
    assert not NEEDS_VALUE.search("ALTER TABLE a ADD COLUMN b TEXT NOT NULL DEFAULT ''")
