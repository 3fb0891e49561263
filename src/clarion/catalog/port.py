"""What other slices use of the catalog, and the port of its sandbox."""

from __future__ import annotations

from typing import Protocol

from clarion.catalog.catalog import Catalog as Catalog
from clarion.catalog.entry import CatalogEntry as CatalogEntry
from clarion.catalog.sandbox.jobs import Job, JobResult


class Sandbox(Protocol):
    """Runs the schemas and templates that apps wrote where they cannot do harm."""

    async def run(self, app_id: str, job: Job) -> JobResult:
        """Run a job for an app, in turn with other apps. A job that exceeds its limits has a fault.

        `TooManyRequests` if the app has used up its processor time, or too many of its jobs wait;
        `Overloaded` if no process is available.
        """
