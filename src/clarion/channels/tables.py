"""The table of providers."""

from __future__ import annotations

from clarion.channels.model import Provider, secrets_context
from clarion.store.table import Owner, Sealed, Stays, Table

PROVIDERS = Table(
    "providers",
    Provider,
    # The store seals them itself.
    codecs={"secrets": (None, None)},
    key=("app_id", "channel", "name"),
    owner=Owner.APP,
    impersonal="of apps",
    columns={"secrets": Sealed(secrets_context)},
    ends=Stays("Deleted over the API."),
    shard=("app_id",),
    note="small, on every shard",
)
TABLES = (PROVIDERS,)
