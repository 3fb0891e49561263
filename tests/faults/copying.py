"""Copies a SQLite database in a process of its own, which kills itself on the way.

With a number other than zero the process dies by SIGKILL right after that many statements were sent
to PostgreSQL. If there are fewer, it ends normally.
"""

import asyncio

import asyncpg

from clarion.app.tables import COPIED
from clarion.store.copying.data_copy import DataCopy, Watch
from clarion.store.copying.source import Source
from clarion.store.copying.target import Target
from tests.faults.migrating import KillSwitch

BATCH_ROWS = 4


def copy_database(path: str, url: str, kill_at: int) -> None:
    asyncio.run(_copy(path, url, KillSwitch(kill_at)))


async def _copy(path: str, url: str, switch: KillSwitch) -> None:
    connection = await asyncpg.connect(url)
    connection.add_query_logger(lambda _record: switch.count())
    source = Source.open(path, COPIED)
    watch = Watch(lambda _table, _rows: None, lambda _table, _rows: None, lambda: None)
    await DataCopy(source, Target(connection), watch, batch_rows=BATCH_ROWS).run()
    source.close()
    await connection.close()
