"""The tables of notification types, their categories and templates."""

from __future__ import annotations

from functools import partial

from clarion.catalog.model import CategoryDefinition, Template
from clarion.store.table import Owner, Stays, Table

_of_app = partial(
    Table, owner=Owner.APP, impersonal="of apps", shard=("app_id",), note="small, on every shard"
)
TYPES = _of_app(
    "notification_types", tuple, key=("app_id", "type"), ends=Stays("An app deletes its types.")
)
TEMPLATES = _of_app(
    "templates",
    Template,
    key=("app_id", "type", "channel", "language", "version"),
    ends=Stays("The newest 50 versions are kept; they are deleted with their type."),
)
CATEGORIES = _of_app(
    "categories",
    CategoryDefinition,
    key=("app_id", "name"),
    ends=Stays("An app deletes its categories."),
)
TABLES = (TYPES, TEMPLATES, CATEGORIES)
