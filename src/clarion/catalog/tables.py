"""The tables of notification types, their categories and templates."""

from __future__ import annotations

from clarion.catalog.model import CategoryDefinition, Template
from clarion.store.table import Owner, Stays, Table

_EVERYWHERE = "small, on every shard"

TYPES = Table(
    "notification_types",
    tuple,
    key=("app_id", "type"),
    owner=Owner.APP,
    impersonal="of apps",
    ends=Stays("Deleted over the API."),
    shard=("app_id",),
    note=_EVERYWHERE,
)
TEMPLATES = Table(
    "templates",
    Template,
    key=("app_id", "type", "channel", "language", "version"),
    owner=Owner.APP,
    impersonal="of apps",
    ends=Stays("The newest 50 versions are kept, until the type is deleted."),
    shard=("app_id",),
    note=_EVERYWHERE,
)
CATEGORIES = Table(
    "categories",
    CategoryDefinition,
    key=("app_id", "name"),
    owner=Owner.APP,
    impersonal="of apps",
    ends=Stays("Deleted over the API."),
    shard=("app_id",),
    note=_EVERYWHERE,
)
TABLES = (TYPES, TEMPLATES, CATEGORIES)
