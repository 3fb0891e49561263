"""A journal of every change of status and every claim, written by triggers of PostgreSQL itself.

Sampling from outside could miss a status that goes back and forth; a trigger cannot.
"""

import asyncpg

# What comes later has the higher number; the end states of a kind share one.
RANKS = {
    "events": {"scheduled": 0, "pending": 1, "processing": 2, "completed": 3},
    "deliveries": {"held": 0, "collected": 0, "queued": 1, "sent": 2, "delivered": 3},
    "messages": {"queued": 0, "pending": 0, "delivered": 1, "expired": 1, "failed": 1},
}
# A job that is claimed again before its lease has ended. A token counts the claims of a job in its
# last three digits.
DOUBLE_LEASES = """
SELECT id, before, after FROM journal WHERE kind = 'jobs' AND after::bigint = before::bigint + 1
AND before::bigint % 1000 > 0 AND due_at > now_ms + 1000"""

CREATE = """
CREATE TABLE journal (
  number BIGSERIAL PRIMARY KEY, kind TEXT, id TEXT, before TEXT, after TEXT, due_at BIGINT,
  now_ms BIGINT);
CREATE FUNCTION note_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO journal (kind, id, before, after) VALUES (
    TG_TABLE_NAME, COALESCE(to_jsonb(OLD)->>'notification_id', '') || ' ' ||
    COALESCE(to_jsonb(OLD)->>'id', to_jsonb(OLD)->>'channel'), OLD.status, NEW.status);
  RETURN NULL;
END $$;
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO journal (kind, id, before, after, due_at, now_ms) VALUES (
    'jobs', OLD.id, OLD.token, NEW.token, OLD.due_at,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  RETURN NULL;
END $$;
CREATE TRIGGER note_claim AFTER UPDATE OF token ON jobs FOR EACH ROW EXECUTE FUNCTION note_claim();
"""
WATCH = """
CREATE TRIGGER note_status AFTER UPDATE ON {table} FOR EACH ROW
WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION note_status()"""


async def start_journal(url: str) -> None:
    """Have everything written down from now on."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(CREATE)
        for table in RANKS:
            await connection.execute(WATCH.format(table=table))
    finally:
        await connection.close()


async def read_faults(url: str) -> tuple[int, list[str]]:
    """Return how much is in the journal, and what in it must not have happened."""
    connection = await asyncpg.connect(url)
    try:
        doubled = await connection.fetch(DOUBLE_LEASES)
        changes = await connection.fetch("SELECT kind, id, before, after FROM journal")
    finally:
        await connection.close()
    faults = [f"job {row['id']} was claimed twice: {row['after']}" for row in doubled]
    faults += [
        f"{kind} {name} went from {before} to {after}"
        for kind, name, before, after in changes
        if kind in RANKS and goes_back(kind, before, after)
    ]
    return len(changes), faults


def goes_back(kind: str, before: str, after: str) -> bool:
    """Whether a status became an earlier one, or one end another."""
    ranks = RANKS[kind]
    last = max(ranks.values())
    rank = ranks.get(before, last)
    return rank == last or ranks.get(after, last) < rank
