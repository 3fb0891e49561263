"""SQL expressions on jobs, for statements of other slices."""

from __future__ import annotations


def has_job(app_id: str, job_id: str) -> str:
    """Return the condition that an app has a job with an id, which may be a dead letter."""
    return f"""EXISTS (SELECT 1 FROM jobs
    WHERE jobs.app_id = {app_id} AND jobs.id = {job_id})"""


def is_without_job(job_id: str) -> str:
    """Return the condition that no job has an id.

    PostgreSQL runs a scalar subquery for each row; NOT EXISTS it may turn into a join that reads a
    whole table.
    """
    return f"(SELECT jobs.id FROM jobs WHERE jobs.id = {job_id}) IS NULL"
