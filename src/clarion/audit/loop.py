"""The loop of the audit log: links new entries, then appends them to the file."""

from __future__ import annotations

import asyncio
import contextlib

from clarion.audit.chain import is_linked
from clarion.audit.log_file import LogFile
from clarion.audit.model import Entry
from clarion.audit.sql import AuditLog
from clarion.errors import ClarionError
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import Outage, Work

# Other nodes and commands write entries too.
EVERY_S = 1.0
_PAGE = 500
_STOP_S = 2.0


class AuditLoop:
    """Keeps the chain and its file up to date."""

    def __init__(self, log: AuditLog, file: LogFile | None) -> None:
        self._log = log
        self._file = file
        self._last: Entry | None = None  # in the file
        self._is_known = False
        self._fault: str | None = None
        self._reported: str | None = None
        self._unwritten = Outage("audit_file_not_written", "audit_file_written")
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Link soon: something was written."""
        self._wake.set()

    async def run(self) -> None:
        """Link and append until cancelled."""
        work = Work("audit_log")
        while True:
            self._wake.clear()
            with work.attempt():
                await self._run_reported()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._wake.wait()

    async def _run_reported(self) -> None:
        try:
            await self.run_once()
        except OSError as error:
            self._unwritten.begin(error.strerror or type(error).__name__)
        else:
            self._unwritten.end()
            self.report()

    async def stop(self) -> None:
        """Link and append the newest entries, if that is possible now."""
        with contextlib.suppress(ClarionError, OSError, TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self.run_once(is_last=True)

    async def run_once(self, *, is_last: bool = False) -> None:
        """Link all waiting entries, and append those missing in the file."""
        await self._log.record_counted(is_last=is_last)
        while await self._log.link_waiting():
            pass
        if self._file is not None:
            await self._append_missing(self._file)

    async def _append_missing(self, file: LogFile) -> None:
        if not self._is_known:
            self._last = await asyncio.to_thread(file.find_last)
            self._is_known = True
        last = self._last.sequence or 0 if self._last else 0
        while page := await self._log.chain.read(last, _PAGE):
            self._check(page[0])
            await asyncio.to_thread(file.append, page)
            self._last = page[-1]
            last = self._last.sequence or 0
        state = await self._log.chain.get_state()
        if state.sequence < last:
            self._fault = f"entries after {state.sequence} are in the file, but not in the store"

    def _check(self, entry: Entry) -> None:
        before = self._last
        if before is None or entry.sequence != (before.sequence or 0) + 1:
            return  # the file begins here, or what is between them was pruned
        if not is_linked(self._log.keys, entry, before.link or ""):
            self._fault = f"entry {entry.sequence} does not follow the last one in the file"

    def report(self) -> None:
        """Log the fault that was found, once."""
        if self._fault not in (None, self._reported):
            get_logger().error("audit_chain_broken", fault=self._fault)
            self._reported = self._fault
        self._fault = None
