"""The notifications of a user who is erased, in SQL, with all that belongs to them."""

from __future__ import annotations

from clarion.events.sql.erasure import clear_errors, delete_work
from clarion.history.sql.ended import read_decisions
from clarion.history.tables import DELIVERIES, NOTIFICATIONS, TABLES
from clarion.push.sql.redaction import ERASE
from clarion.store.engine import Engine
from clarion.store.lifecycle import user_rows
from clarion.store.lifecycle.user_rows import CHUNK, ErasedUser, WriteChunk
from clarion.store.statement import statement
from clarion.store.table import Owner

FIND = statement(
    "find_notifications_to_erase",
    f"""SELECT id, event_id, ended_deliveries FROM notifications
    WHERE app_id = :app_id AND user_id = :user_id LIMIT {CHUNK}""",
)


async def erase_notifications(engine: Engine, user: ErasedUser, write: WriteChunk) -> None:
    """Delete the notifications of a user with their deliveries, attempts and messages."""
    children = [each for each in TABLES if each.owner is Owner.NOTIFICATION]
    delete = user_rows.delete(NOTIFICATIONS)
    while found := await engine.fetch_in_background(FIND, **user.key):
        ids = sorted(notification_id for notification_id, _, _ in found)
        rows = [(one,) for one in ids]
        steps = delete_work(user, ids)
        steps |= {each.name: user_rows.delete_owned(each).many(rows) for each in children}
        messages = [ERASE.bind(notification_id=one, app_id=user.app_id) for one in ids]
        steps["messages"] = ERASE.many(messages)
        steps["events"] = clear_errors(user.app_id, sorted({event_id for _, event_id, _ in found}))
        steps[NOTIFICATIONS.name] = delete.many([delete.bind(**user.key, id=one) for one in ids])
        ended = sum(len(read_decisions(text)) for *_, text in found if text)
        await write(steps, within={DELIVERIES.name: ended})
