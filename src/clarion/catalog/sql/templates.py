"""Templates in SQL: one version a row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from clarion.catalog.model import Channel, Template
from clarion.pages import Page, refuse_cursor
from clarion.store.statement import Row, Unit, statement

if TYPE_CHECKING:
    from clarion.store.engine import Engine

_COLUMNS = "type, channel, language, version, subject, body, variables, created_at"
_PLACE = "app_id = :app_id AND type = :type AND channel = :channel AND language = :language"
_LARGEST = (1 << 63) - 1
_VERSION = re.compile(r"[0-9]{1,18}")

PUT = statement(
    "put_template",
    f"""INSERT INTO templates (app_id, {_COLUMNS}) VALUES (:app_id, :type, :channel, :language,
    (SELECT COALESCE(MAX(version), 0) + 1 FROM templates WHERE {_PLACE}),
    :subject, :body, :variables, :created_at) RETURNING {_COLUMNS}""",
)
GET = statement(
    "get_template",
    f"SELECT {_COLUMNS} FROM templates WHERE {_PLACE} ORDER BY version DESC LIMIT 1",
)
LIST = statement(
    "list_templates_of_type",
    f"""SELECT {_COLUMNS} FROM templates WHERE app_id = :app_id AND type = :type
    AND version = (SELECT MAX(other.version) FROM templates AS other
      WHERE other.app_id = templates.app_id AND other.type = templates.type
      AND other.channel = templates.channel AND other.language = templates.language)
    ORDER BY channel, language LIMIT 1000""",
)
LIST_VERSIONS = statement(
    "list_versions_of_template",
    f"""SELECT {_COLUMNS} FROM templates WHERE {_PLACE} AND version < :version
    ORDER BY version DESC LIMIT :limit""",
)
_encode = msgspec.json.Encoder().encode
_read_variables = msgspec.json.Decoder(tuple[str, ...]).decode


class SqlTemplates:
    """The `Templates` port. A cursor is the version of the last entry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, app_id: str, template: Template) -> Template:
        """Add a template as the next version."""
        step = PUT.step(
            app_id=app_id,
            type=template.type,
            channel=template.channel.value,
            language=template.language,
            subject=template.subject,
            body=template.body,
            variables=_encode(template.variables).decode(),
            created_at=template.created_at,
        )
        done = await self._engine.write(Unit(app_id, (step,)))
        assert done is not None  # noqa: S101 - there is no guard that could refuse it
        return _template(done[0][0])

    async def get(
        self, app_id: str, type_name: str, channel: Channel, language: str
    ) -> Template | None:
        """Return the newest version, or None."""
        rows = await self._engine.fetch(
            GET, app_id=app_id, type=type_name, channel=channel.value, language=language
        )
        return _template(rows[0]) if rows else None

    async def list(self, app_id: str, type_name: str) -> tuple[Template, ...]:
        """Return the newest version for each channel and language."""
        rows = await self._engine.fetch(LIST, app_id=app_id, type=type_name)
        return tuple(_template(row) for row in rows)

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
        """Return the versions, newest first."""
        rows = await self._engine.fetch(
            LIST_VERSIONS,
            app_id=app_id,
            type=type_name,
            channel=channel.value,
            language=language,
            version=_parse_cursor(after) if after else _LARGEST,
            limit=limit + 1,
        )
        items = tuple(_template(row) for row in rows[:limit])
        return Page(items, str(items[-1].version) if len(rows) > limit else None)


def _parse_cursor(cursor: str) -> int:
    if not _VERSION.fullmatch(cursor):
        raise refuse_cursor()
    return int(cursor)


def _template(row: Row) -> Template:
    return Template(
        type=row[0],
        channel=Channel(row[1]),
        language=row[2],
        version=row[3],
        subject=row[4],
        body=row[5],
        variables=_read_variables(row[6]),
        created_at=row[7],
    )
