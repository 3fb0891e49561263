"""`make bench`: starts the real server as a process, drives it from another, prints the table."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.load import Load, Request, run_in_process
from bench.process import free_ports, serving
from bench.table import Row, json_lines, text
from tests.servers import PostgresServer

EVENT = b'{"type":"POST_LIKE","user_id":"user-42","text":"Ana liked your photo of the harbour"}'
HEADERS = (("content-type", "application/json"),)
EMPTY = Request(method="POST", path="/bench/empty", headers=HEADERS, body=EVENT)
WRITE = Request(method="POST", path="/bench/write", headers=HEADERS, body=EVENT)


@contextmanager
def bench_server(folder: Path, *flags: str) -> Iterator[int]:
    """Run the bench's server for the block; yields the port of its plain listener."""
    plain, tls, gateway = free_ports(3)
    command = [sys.executable, "-m", "bench.server", "--data", str(folder)]
    command += ["--listen", f"127.0.0.1:{plain}", "--tls-listen", f"127.0.0.1:{tls}"]
    command += ["--gateway-listen", f"127.0.0.1:{gateway}", "--log-level", "warning", *flags]
    with serving(command, f"http://127.0.0.1:{plain}/ready"):
        yield plain


def measure_writes(engine: str, port: int, seconds: float) -> Iterator[Row]:
    """Durable writes beside the empty handler of the same server, each under the same load."""
    load = Load(
        host="127.0.0.1", port=port, connections=8, streams=64, duration_s=seconds, warm_up_s=1
    )
    before = Row.of(f"empty handler, {engine}", run_in_process(load, EMPTY))
    yield before
    written = run_in_process(load, WRITE)
    yield Row.of(f"durable write of two statements, {engine}", written, before)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="how long each row is measured")
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    options = parser.parse_args()
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with bench_server(folder / "sqlite") as port:
            rows += measure_writes("SQLite", port, options.seconds)
        postgres = stack.enter_context(PostgresServer())
        with bench_server(folder / "postgres", "--database", postgres.url) as port:
            rows += measure_writes("PostgreSQL", port, options.seconds)
    print(json_lines(rows) if options.json else text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
