"""Gives the writer process of a server under test a disk that fails on command.

Python imports the `sitecustomize` it finds on its path at the start of every process. With this
folder on PYTHONPATH the server is the real one, its writer process is the real one, and only what
lies below SQLite is ours.
"""

import os
import sys
from pathlib import Path

if "clarion.store.sqlite.child" in sys.orig_argv:
    from tests.faults.disk_faults import ORDERS, FaultyVfs, Orders, RefusingWrites

    orders = Orders(Path(os.environ[ORDERS]))
    WRITES = RefusingWrites(orders.refuses).__enter__()
    SYNCS = FaultyVfs("faulty", orders.before_sync, is_default=True)
