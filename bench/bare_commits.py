"""What SQLite can do with the rows of pushes and nothing else: one commit after the other."""

import tempfile
from itertools import count
from pathlib import Path
from time import perf_counter, process_time

from bench.table import Row
from clarion.clock import SystemClock
from clarion.push.model import Message, MessageReason, MessageStatus, PushPriority, StoredMessage
from clarion.push.sql.messages import ADD, add_steps
from clarion.store.migrations.plan import apply_to_sqlite
from clarion.store.sqlite.runner import open_connection
from clarion.store.statement import Row as Values

DAY_MS = 24 * 3600 * 1000


def measure_commits(batch: int, devices: int, payload: bytes, seconds: float) -> Row:
    """Commit batches of messages to offline devices, as durable as the server does."""
    clock = SystemClock()
    device_ids = [clock.new_id() for _ in range(devices)]
    with tempfile.TemporaryDirectory() as folder:
        connection = open_connection(str(Path(folder) / "bare.db"))
        apply_to_sqlite(connection)
        began, cpu_s, rows = perf_counter(), process_time(), 0
        for first in count(0, batch):
            if perf_counter() - began >= seconds:
                break
            numbers = range(first, first + batch)
            values = [_row(device_ids[n * 7919 % devices], n, payload, clock) for n in numbers]
            with connection:
                connection.executemany(ADD.text, values).fetchall()
            rows += batch
        elapsed_s, cpu_s = perf_counter() - began, process_time() - cpu_s
        connection.close()
    what = f"bare SQLite: the same rows, {batch} in each commit"
    return Row(what=what, throughput=rows / elapsed_s, cpu_s=cpu_s / rows)


def _row(device_id: str, sequence: int, payload: bytes, clock: SystemClock) -> Values:
    now = clock.now()
    message = Message(
        id=clock.new_id(),
        app_id="app",
        payload=payload,
        priority=PushPriority.IMMEDIATE,
        is_stored=True,
        created_at=now,
        expires_at=now + 30 * DAY_MS,
        device_id=device_id,
        sequence=sequence,
    )
    (step,) = add_steps(
        [StoredMessage(message, MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)]
    )
    (values,) = step.rows
    return values
