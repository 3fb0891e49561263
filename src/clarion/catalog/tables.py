"""The tables of notification types, their categories and templates."""

from __future__ import annotations

from functools import partial

from clarion.catalog.model import CategoryDefinition, Template
from clarion.store.table import Owner, Stays, Table

_of_app = partial(
    Table, owner=Owner.APP, impersonal="of apps", shard=("app_id",), note="small, on every shard"
)
TYPES = _of_app(
    "notification_types", tuple, key=("app_id", "type"), ends=Stays("Deleted over the API.")
)
TEMPLATES = _of_app(
    "templates",
    Template,
    key=("app_id", "type", "channel", "language", "version"),
    ends=Stays("The newest 50 versions are kept, until the type is deleted."),
)
CATEGORIES = _of_app(
    "categories",
    CategoryDefinition,
    key=("app_id", "name"),
    ends=Stays("Deleted over the API."),
)
TABLES = (TYPES, TEMPLATES, CATEGORIES)
