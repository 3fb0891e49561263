"""A process of the sandbox: receives jobs over a socket, one after the other, and answers them.

Each job has a timer on the processor time of this process, whose signal kills it also within C or
Rust, and its memory is limited. The server starts another process.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import sys
import time
from functools import lru_cache

import msgspec

from clarion.catalog.json_schema import Schema, check_schema
from clarion.catalog.model import RenderedText
from clarion.catalog.rendering.mjml import convert
from clarion.catalog.rendering.templates import check_template, render
from clarion.catalog.sandbox.jobs import (
    JOB_CPU_S,
    CheckSchema,
    CheckTemplate,
    ConvertMjml,
    FindFaults,
    Job,
    JobResult,
    Render,
)
from clarion.errors import FieldFault, InvalidFields
from clarion.system.child_process import receive, send

# Of addresses, which are more than the memory in use; macOS does not enforce it.
MEMORY_LIMIT_BYTES = 1 << 29
_SCHEMAS = 32


def serve(channel: socket.socket) -> None:
    """Do jobs until the other side closes the socket."""
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder(Job).decode
    while message := receive(channel):
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, JOB_CPU_S)
        answer = do(decode(message))
        signal.setitimer(signal.ITIMER_PROF, 0)
        taken = time.process_time() - began
        encoded = encode(msgspec.structs.replace(answer, cpu_s=taken))
        send(channel, encoded)


def do(job: Job) -> JobResult:
    """Return the answer to a job."""
    try:
        return _answer(job)
    except InvalidFields as error:
        return JobResult(faults=error.faults)
    except (MemoryError, RecursionError):
        return JobResult(faults=(job.exceeded,))


def _answer(job: Job) -> JobResult:
    match job:
        case CheckSchema(document):
            return _check_schema(document)
        case FindFaults(document, data):
            return _find_faults(bytes(document), data)
        case CheckTemplate(subject, body, variables, is_mjml):
            check_template(subject, body, variables, is_mjml=is_mjml)
            return JobResult()
        case ConvertMjml(body):
            return JobResult(body=convert(body))
        case Render(subject, body, is_html, context):
            text = render(RenderedText(subject, body), context, is_html=is_html)
            return JobResult(subject=text.subject, body=text.body)


def _check_schema(document: dict[str, object]) -> JobResult:
    try:
        check_schema(document)
    except ValueError as error:
        return JobResult(faults=(FieldFault("data_schema", str(error)),))
    return JobResult()


def _find_faults(document: bytes, data: dict[str, object]) -> JobResult:
    try:
        return JobResult(faults=_load(document).find_faults(data))
    except ValueError as error:
        # An earlier release accepted it.
        return JobResult(faults=(FieldFault("type", f"its data_schema {error}"),))


@lru_cache(_SCHEMAS)
def _load(document: bytes) -> Schema:
    return Schema(msgspec.json.decode(document))


def _warm_up() -> None:
    """Load what libraries load when they are first used: it is no part of a job's time."""
    do(Render(None, "{{ 'now' | date: '%Y' | upcase }}", is_html=True, context={}))
    do(ConvertMjml("<mjml><mj-body></mj-body></mjml>"))
    do(FindFaults(msgspec.Raw(b'{"pattern": "a"}'), {}))


def _limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


if __name__ == "__main__":
    # Ctrl-C reaches the whole process group; the server ends this process by closing the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Without a handler it kills the process, wherever it is.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _limit_resources()
    _warm_up()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(socket.socket(fileno=int(sys.argv[1])))
