"""The tables of a database about itself."""

from __future__ import annotations

from functools import partial

from clarion.store.table import Omitted, Owner, Sealed, Stays, Table


def seal_context(installation_id: str) -> str:
    """Return the context of the value that shows which master key a database has."""
    return f"installation/{installation_id}"


_of_database = partial(Table, owner=Owner.INSTALLATION)
INSTALLATION = _of_database(
    "installation",
    tuple,
    key=("id",),
    impersonal="the id of the database",
    columns={"seal": Sealed(seal_context)},
    ends=Stays("One row."),
    not_copied="Written last: this row marks the copy as complete.",
    note="one row for each shard",
)
RETIRED_KEYS = _of_database(
    "retired_keys",
    tuple,
    key=("id",),
    impersonal="ids of keys",
    ends=Stays("Kept so that no node seals with a replaced key."),
)
COPIED_TABLES = _of_database(
    "copied_tables",
    tuple,
    key=("name",),
    impersonal="empty, except while a database is copied into this one",
    columns={"last_key": Omitted("how far a table is copied")},
    ends=Stays("Empty once the copy is complete."),
    not_copied="It is the progress of the copy itself.",
    note="each shard has its own",
)
MIGRATIONS = _of_database(
    "migrations",
    tuple,
    key=("version",),
    impersonal="of the schema",
    ends=Stays("One row for each migration."),
    not_copied="The schema of each engine is recorded when it is created.",
    note="each shard has its own",
)
TABLES = (INSTALLATION, RETIRED_KEYS, COPIED_TABLES, MIGRATIONS)
