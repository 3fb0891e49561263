"""The tables of the audit log."""

from __future__ import annotations

from clarion.audit.chain import retired_key_context
from clarion.audit.model import ChainState, Entry
from clarion.store.table import Owner, Pruned, Sealed, Stays, Table

# The address of a caller may be that of a user. It is kept as long as the audit log, which is the
# record of who had access to personal data.
ENTRIES = Table(
    "audit_entries",
    Entry,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="users are in them by pseudonyms, which are keyed hashes",
    ends=Pruned("audit_entries_by_time", ("audit_days",)),
    kept_of_app="The entries are one chain, and show who deleted the app. They end by their age.",
    note="one chain of the installation",
)
CHAIN = Table(
    "audit_chain",
    ChainState,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="numbers and signatures of entries",
    ends=Stays("One row."),
    note="one row",
)
KEYS = Table(
    "audit_keys",
    tuple,
    key=("id",),
    owner=Owner.INSTALLATION,
    impersonal="keys of the installation",
    columns={"sealed_key": Sealed(retired_key_context)},
    ends=Stays("Kept to verify the entries that a retired key has signed."),
)
TABLES = (ENTRIES, CHAIN, KEYS)
