"""Gives the writer process of a server under test a disk that fails to order.

Python imports the `sitecustomize` it finds on its path at the start of every process. With this
folder on PYTHONPATH the server is the real one, its writer process is the real one, and only the
file system below SQLite is ours.
"""

import sys

if "clarion.store.sqlite.child" in sys.orig_argv:
    from tests.faults.disk_faults import FaultyVfs, obey_orders

    VFS = FaultyVfs("faulty", obey_orders, is_default=True)
