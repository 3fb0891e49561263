"""Load over HTTP/2: frames by hand on uvloop, so that the generator stays ahead of the server.

`python -m bench.load URL` sends one request over and over; `run` and `run_in_process` take a
function from index to request. Without a rate every stream is kept busy (closed loop); with one,
requests go out on schedule whatever the server does, and latency counts from the scheduled time.
"""

import argparse
import asyncio
import json
import multiprocessing
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from time import perf_counter, process_time
from typing import cast
from urllib.parse import urlsplit

import uvloop

from bench.http2.connection import Connection
from bench.http2.frames import ProtocolError, status_of
from bench.http2.session import Session, pacing
from bench.http2.terms import Load, OnAnswer, Request, Result, Source

__all__ = [
    "Load",
    "OnAnswer",
    "ProtocolError",
    "Request",
    "Result",
    "Source",
    "run",
    "run_in_process",
    "status_of",
]


def _tls(load: Load) -> ssl.SSLContext | None:
    if not load.tls:
        return None
    context = ssl.create_default_context(cafile=load.ca_file)
    context.set_alpn_protocols(["h2"])
    if load.ca_file is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _connect(session: Session) -> None:
    """Open one connection after the other, as far as that goes in the time there is."""
    load, context = session.load, _tls(session.load)
    create = asyncio.get_running_loop().create_connection
    with suppress(OSError):
        async with asyncio.timeout(load.connect_s):
            for _ in range(load.connections):
                _, opened = await create(
                    lambda: Connection(session), load.host, load.port, ssl=context
                )
                await opened.ready.wait()
    for connection in session.live:
        if not connection.ready.is_set():
            connection.close()
    if missing := load.connections - sum(c.ready.is_set() for c in session.live):
        session.tally.errors["connect"] = missing


async def _drive(session: Session) -> Result:
    asyncio.get_running_loop().set_exception_handler(session.fail)
    await _connect(session)
    session.tally.since = session.schedule.begin(perf_counter())
    with pacing(session):
        await _warm_up(session)
        result = await _measure(session)
    if session.fault:
        raise session.fault
    return result


async def _warm_up(session: Session) -> None:
    if session.load.warm_up_s:
        session.fill()
        await session.wait(session.load.warm_up_s)


async def _measure(session: Session) -> Result:
    load, schedule, tally, cpu_s = session.load, session.schedule, session.tally, process_time()
    if load.rate is None:
        tally.since = schedule.measure(perf_counter())
    session.fill()
    await session.wait(load.duration_s)
    until = min(perf_counter(), tally.since + load.duration_s)
    if load.rate is None:
        tally.unsent(schedule.stop(until))
    await session.wait(load.grace_s)
    tally.unsent(schedule.stop(perf_counter()))
    for connection in session.live:
        connection.close()
    return tally.result(until, process_time() - cpu_s)


def run(load: Load, requests: Request | Source, on_answer: OnAnswer | None = None) -> Result:
    """Put the load on the server, in this process; `on_answer` gets every body, whole.

    A source may give one object again and again, which is then encoded only once. An exception
    of the source or of `on_answer` ends the run and is raised here.
    """
    source = (lambda _: requests) if isinstance(requests, Request) else requests
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(Session(load, source, on_answer)))


def _report(pipe: Pipe, load: Load, requests: Request | Source) -> None:
    pipe.send(run(load, requests))


def run_in_process(load: Load, requests: Request | Source) -> Result:
    """Do `run` in a fresh process; a source must be a function (or partial) a module defines."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(sender, load, requests), daemon=True)
    child.start()
    sender.close()
    try:
        if not receiver.poll(load.longest_s):
            raise TimeoutError(f"no result of the load after {load.longest_s:.0f} s")
        return cast("Result", receiver.recv())
    except EOFError as error:
        raise ChildProcessError("the load failed; its process printed why") from error
    finally:
        child.kill()
        child.join()
        receiver.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--streams", type=int, default=100, help="in flight, each connection")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--grace", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--total", type=int, help="stop after so many requests")
    parser.add_argument("--rate", type=float, help="requests a second, sent on schedule")
    parser.add_argument("--method", help="GET, or POST when there is a body")
    parser.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    parser.add_argument("--body", default="", metavar="TEXT|@FILE")
    parser.add_argument("--ca", metavar="FILE", help="else any certificate will do")
    parser.add_argument("--json", action="store_true")
    return parser


def _load_of(options: argparse.Namespace) -> Load:
    url = urlsplit(options.url)
    tls = url.scheme == "https"
    return Load(
        host=url.hostname or "127.0.0.1",
        port=url.port or (443 if tls else 80),
        tls=tls,
        ca_file=options.ca,
        connections=options.connections,
        streams=options.streams,
        duration_s=options.seconds,
        warm_up_s=options.warm_up,
        grace_s=options.grace,
        total=options.total,
        rate=options.rate,
    )


def _request_of(options: argparse.Namespace) -> Request:
    url = urlsplit(options.url)
    text: str = options.body
    body = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
    pairs = [header.partition(":") for header in options.header]
    return Request(
        method=options.method or ("POST" if body else "GET"),
        path=(url.path or "/") + (f"?{url.query}" if url.query else ""),
        headers=tuple((name.strip(), value.strip()) for name, _, value in pairs),
        body=body,
    )


def _line(result: Result) -> str:
    times = "  ".join(f"p{p} {result.percentile(p) * 1000:.2f} ms" for p in (50, 90, 99, 100))
    counts = [*result.by_status.items(), *result.errors.items()]
    outcome = ", ".join(f"{name}: {count:,}" for name, count in counts)
    return f"{result.throughput:,.0f}/s  {times}  {outcome}  (generator {result.busy:.0%} busy)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load that the command line describes; fails when nothing was answered."""
    options = _parser().parse_args(arguments)
    result = run(_load_of(options), _request_of(options))
    sys.stdout.write((json.dumps(result.summary()) if options.json else _line(result)) + "\n")
    return 0 if result.answered else 1


if __name__ == "__main__":
    sys.exit(main())
