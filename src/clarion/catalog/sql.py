"""Notification types, categories and templates in SQL."""

from __future__ import annotations

import msgspec

from clarion.catalog.model import Category, CategoryDefinition, Channel, NotificationType, Template
from clarion.catalog.tables import CATEGORIES, TEMPLATES
from clarion.errors import Conflict
from clarion.pages import LARGEST, Page, cut_page, parse_number, refuse_cursor
from clarion.store.engine import Engine
from clarion.store.statement import Unit, statement

# Of one template.
VERSIONS_KEPT = 50
# Of all templates of an app.
VERSIONS_LIMIT = 20_000
CATEGORIES_LIMIT = 50
_PLACE = "app_id = :app_id AND type = :type AND channel = :channel AND language = :language"
_NEXT_VERSION = f"(SELECT COALESCE(MAX(version), 0) + 1 FROM templates WHERE {_PLACE})"

# A type is one row with its definition as JSON.
PUT_TYPE = statement(
    "put_type",
    """INSERT INTO notification_types
    (app_id, type, definition, own_category, created_at, updated_at)
    VALUES (:app_id, :type, :definition, :own_category, :now, :now)
    ON CONFLICT (app_id, type) DO UPDATE SET definition = excluded.definition,
    own_category = excluded.own_category, updated_at = excluded.updated_at""",
)
# Takes the row's lock: a type and the deletion of its category wait for each other.
LOCK_CATEGORY = statement(
    "lock_category",
    """UPDATE categories SET name = name WHERE app_id = :app_id AND name = :name
    RETURNING name""",
)
# Counts and writes in one statement. Two nodes at once may each add the last one.
PUT_CATEGORY = statement(
    "put_category",
    f"""INSERT INTO categories (app_id, {CATEGORIES.columns})
    SELECT :app_id, :name, :title, :description, :default_channels,
    CAST(:user_can_disable AS INTEGER), CAST(:created_at AS BIGINT), CAST(:updated_at AS BIGINT)
    WHERE (SELECT COUNT(*) FROM categories
    WHERE app_id = :app_id AND name <> :name) < {CATEGORIES_LIMIT}
    ON CONFLICT (app_id, name) DO UPDATE SET {CATEGORIES.assign_others("name", "created_at")}
    RETURNING {CATEGORIES.columns}""",
)
GET_CATEGORY = statement(
    "get_category",
    f"SELECT {CATEGORIES.columns} FROM categories WHERE app_id = :app_id AND name = :name",
)
LIST_CATEGORIES = statement(
    "list_categories",
    f"""SELECT {CATEGORIES.columns} FROM categories WHERE app_id = :app_id
    ORDER BY name LIMIT {CATEGORIES_LIMIT}""",
)
_TYPES_OF_CATEGORY = """notification_types WHERE app_id = :app_id
    AND own_category = :name AND own_category IS NOT NULL"""
FIND_TYPE_OF_CATEGORY = statement(
    "find_type_of_category", f"SELECT type FROM {_TYPES_OF_CATEGORY} ORDER BY type LIMIT 1"
)
DELETE_CATEGORY = statement(
    "delete_category",
    f"""DELETE FROM categories WHERE app_id = :app_id AND name = :name
    AND NOT EXISTS (SELECT 1 FROM {_TYPES_OF_CATEGORY}) RETURNING name""",
)
GET_TYPE = statement(
    "get_type",
    "SELECT definition FROM notification_types WHERE app_id = :app_id AND type = :type",
)
LIST_TYPES = statement(
    "list_types",
    """SELECT definition FROM notification_types WHERE app_id = :app_id
    ORDER BY type LIMIT 1000""",
)
LIST_TYPE_NAMES = statement(
    "list_type_names",
    "SELECT type FROM notification_types WHERE app_id = :app_id ORDER BY type LIMIT 1000",
)
MEASURE_TYPES = statement(
    "measure_types",
    """SELECT COUNT(*), COALESCE(SUM(LENGTH(definition)), 0) FROM notification_types
    WHERE app_id = :app_id AND type <> :type""",
)
DELETE_TYPE = statement(
    "delete_type",
    "DELETE FROM notification_types WHERE app_id = :app_id AND type = :type RETURNING type",
)
DELETE_TEMPLATES = statement(
    "delete_templates_of_type",
    "DELETE FROM templates WHERE app_id = :app_id AND type = :type RETURNING version",
)
# Each version of a template is one row.
PUT_TEMPLATE = statement(
    "put_template",
    f"""INSERT INTO templates (app_id, {TEMPLATES.columns})
    VALUES (:app_id, {TEMPLATES.parameters.replace(":version", _NEXT_VERSION)})
    RETURNING {TEMPLATES.columns}""",
)
DELETE_OLD_VERSIONS = statement(
    "delete_old_versions",
    f"""DELETE FROM templates WHERE {_PLACE}
    AND version <= (SELECT MAX(version) FROM templates WHERE {_PLACE}) - {VERSIONS_KEPT}""",
)
COUNT_VERSIONS = statement(
    "count_versions",
    f"""SELECT COUNT(*) FROM (SELECT 1 FROM templates WHERE app_id = :app_id
    LIMIT {VERSIONS_LIMIT}) AS versions""",
)
LIST_TEMPLATES = statement(
    "list_templates_of_type",
    f"""SELECT {TEMPLATES.columns} FROM templates WHERE app_id = :app_id AND type = :type
    AND version = (SELECT MAX(other.version) FROM templates AS other
      WHERE other.app_id = templates.app_id AND other.type = templates.type
      AND other.channel = templates.channel AND other.language = templates.language)
    ORDER BY channel, language LIMIT 1000""",
)
LIST_VERSIONS = statement(
    "list_versions_of_template",
    f"""SELECT {TEMPLATES.columns} FROM templates WHERE {_PLACE} AND version < :version
    ORDER BY version DESC LIMIT :limit""",
)
_read_type = msgspec.json.Decoder(NotificationType).decode


class Types:
    """The notification types that apps have defined, including changed built-in ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, app_id: str, definition: NotificationType, now: int) -> bool:
        """Create or replace a type; False if there is no such category."""
        text = msgspec.json.encode(definition).decode()
        own = None if definition.category in set(Category) else definition.category
        put = PUT_TYPE.step(
            app_id=app_id, type=definition.type, definition=text, own_category=own, now=now
        )
        # The type comes first: a deletion of the category in the same batch sees it.
        check = () if own is None else (LOCK_CATEGORY.guard(app_id=app_id, name=own),)
        return await self._engine.write(Unit(app_id, (put, *check), app_id)) is not None

    async def get(self, app_id: str, type_name: str) -> NotificationType | None:
        """Return the app's definition of a type, or None."""
        rows = await self._engine.fetch(GET_TYPE, app_id=app_id, type=type_name)
        return _read_type(rows[0][0]) if rows else None

    async def list(self, app_id: str) -> tuple[NotificationType, ...]:
        """Return the app's definitions sorted by name, at most 1,000."""
        rows = await self._engine.fetch(LIST_TYPES, app_id=app_id)
        return tuple(_read_type(row[0]) for row in rows)

    async def list_names(self, app_id: str) -> tuple[str, ...]:
        """Return the names of the types that the app has defined, at most 1,000."""
        rows = await self._engine.fetch(LIST_TYPE_NAMES, app_id=app_id)
        return tuple(row[0] for row in rows)

    async def measure(self, app_id: str, without: str) -> tuple[int, int]:
        """Return how many definitions the app has except that of a type, and their bytes."""
        rows = await self._engine.fetch(MEASURE_TYPES, app_id=app_id, type=without)
        return int(rows[0][0]), int(rows[0][1])

    async def delete(self, app_id: str, type_name: str) -> bool:
        """Delete the app's definition of a type and its templates; False if there were none."""
        steps = (
            DELETE_TYPE.step(app_id=app_id, type=type_name),
            DELETE_TEMPLATES.step(app_id=app_id, type=type_name),
        )
        done = await self._engine.write(Unit(app_id, steps, app_id))
        return done is not None and any(done)


class Categories:
    """The categories that apps have in addition to the built-in ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(
        self, app_id: str, category: CategoryDefinition
    ) -> tuple[CategoryDefinition, bool] | None:
        """Create or replace a category; return it as stored, and whether it is new.

        None if the app has 50 others.
        """
        step = PUT_CATEGORY.guard(app_id=app_id, **CATEGORIES.values(category))
        done = await self._engine.write(Unit(app_id, (step,), app_id))
        if done is None:
            return None
        stored = CATEGORIES.read(done[0][0])
        return stored, stored.created_at == category.created_at

    async def get(self, app_id: str, name: str) -> CategoryDefinition | None:
        """Return a category of the app's own, or None."""
        return CATEGORIES.first(await self._engine.fetch(GET_CATEGORY, app_id=app_id, name=name))

    async def list(self, app_id: str) -> tuple[CategoryDefinition, ...]:
        """Return the app's own categories sorted by name, at most 50."""
        return tuple(map(CATEGORIES.read, await self._engine.fetch(LIST_CATEGORIES, app_id=app_id)))

    async def delete(self, app_id: str, name: str) -> bool:
        """Delete a category; False if it does not exist. `Conflict` if a type uses it."""
        one = {"app_id": app_id, "name": name}
        steps = (LOCK_CATEGORY.guard(**one), DELETE_CATEGORY.step(**one))
        done = await self._engine.write(Unit(app_id, steps, app_id))
        if done is not None and not done[1]:
            rows = await self._engine.fetch(FIND_TYPE_OF_CATEGORY, **one)
            using = rows[0][0] if rows else "A type"
            raise Conflict(
                f"{using} has this category. Delete the types of the category first, or give them "
                "another one."
            )
        return done is not None


class Templates:
    """The templates that apps have written. A version never changes.

    A cursor is the last version of its page.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, app_id: str, template: Template) -> Template:
        """Add a template and return it with its version: one more than the newest, or 1.

        Only the newest 50 versions are kept. `Conflict` if another node adds one at the same
        moment.
        """
        values = TEMPLATES.values(template)
        del values["version"]
        place = {key: values[key] for key in ("type", "channel", "language")}
        steps = (
            PUT_TEMPLATE.step(app_id=app_id, **values),
            DELETE_OLD_VERSIONS.step(app_id=app_id, **place),
        )
        done = await self._engine.write(Unit(app_id, steps, app_id))
        assert done is not None  # noqa: S101 - there is no guard that could refuse it
        return TEMPLATES.read(done[0][0])

    async def count(self, app_id: str) -> int:
        """Return how many versions of templates the app has, at most 20,000."""
        rows = await self._engine.fetch(COUNT_VERSIONS, app_id=app_id)
        return int(rows[0][0])

    async def list(self, app_id: str, type_name: str) -> tuple[Template, ...]:
        """Return the newest version for each channel and language, at most 1,000."""
        rows = await self._engine.fetch(LIST_TEMPLATES, app_id=app_id, type=type_name)
        return tuple(map(TEMPLATES.read, rows))

    async def versions(
        self,
        app_id: str,
        type_name: str,
        channel: Channel,
        language: str,
        *,
        after: str | None,
        limit: int,
    ) -> Page[Template]:
        """Return the versions, newest first. `InvalidFields` if `after` is not a `next`."""
        before = parse_number(after) if after else LARGEST
        if before is None:
            raise refuse_cursor()
        rows = await self._engine.fetch(
            LIST_VERSIONS,
            app_id=app_id,
            type=type_name,
            channel=channel.value,
            language=language,
            version=before,
            limit=limit + 1,
        )
        return cut_page([*map(TEMPLATES.read, rows)], limit, lambda each: str(each.version))
