"""Feedback about tokens that are no longer valid, in SQL."""

from __future__ import annotations

from clarion.pages import Page, read_cursor, refuse_cursor, write_cursor
from clarion.push.model import Feedback
from clarion.push.tables import FEEDBACK
from clarion.store.engine import Engine
from clarion.store.statement import statement

_AFTER_ALL_HASHES = b"\xff" * 32

# A step of the unit that invalidates or deletes the device.
ADD = statement(
    "add_feedback",
    f"""INSERT INTO feedback ({FEEDBACK.columns})
    SELECT app_id, token_hash, invalidation_reason, invalidated_at FROM devices
    WHERE id = :id AND invalidated_at IS NOT NULL
    ON CONFLICT DO NOTHING""",
)
LIST = statement(
    "list_feedback",
    f"""SELECT {FEEDBACK.columns} FROM feedback
    WHERE app_id = :app_id AND (invalidated_at, token_hash) > (:since, :token_hash)
    ORDER BY invalidated_at, token_hash LIMIT :limit""",
)


class FeedbackList:
    """Tokens that are no longer valid, for providers to stop using. Outlives the devices.

    A cursor is the time and token hash of the last entry.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(
        self, app_id: str, *, since: int, after: str | None, limit: int
    ) -> Page[Feedback]:
        """Return the app's entries invalidated at `since` or later, oldest first.

        `InvalidFields` if `after` is not the `next` of a page; so in `History.list`.
        """
        start, token_hash = _parse_cursor(after) if after else (since - 1, _AFTER_ALL_HASHES)
        rows = await self._engine.fetch(
            LIST, app_id=app_id, since=start, token_hash=token_hash, limit=limit + 1
        )
        items = tuple(map(FEEDBACK.read, rows[:limit]))
        return Page(items, _cursor(items[-1]) if len(rows) > limit else None)


def _cursor(entry: Feedback) -> str:
    return write_cursor(entry.invalidated_at, entry.token_hash.hex())


def _parse_cursor(cursor: str) -> tuple[int, bytes]:
    time, token_hash = read_cursor(cursor)
    try:
        return time, bytes.fromhex(token_hash)
    except ValueError as error:
        raise refuse_cursor() from error
