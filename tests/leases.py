"""The leases of a killed server on PostgreSQL, of which tests need not wait for the end."""

from clarion.events.leases import LEASE_MS
from clarion.events.model import TOKEN_STEP
from tests.conftest import run_sql

SHORT_MS = 3_000


async def shorten_leases(url: str, left_ms: int = SHORT_MS) -> None:
    """Let leases run out after so long instead of 45 s; only while no server is at work."""
    claimed = f"token % {TOKEN_STEP} > 0"
    passed = f"UPDATE jobs SET due_at = due_at - {LEASE_MS - left_ms} WHERE {claimed}"  # noqa: S608
    await run_sql(url, passed)
