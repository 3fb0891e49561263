"""libcurl as a client: the command `curl --http2` where it is, and pycurl, which is everywhere."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import pycurl

from tests.conformance.clients.http2 import Request
from tests.conformance.server import ConformanceServer

PATIENCE_S = 60
# Beyond as many streams the command opens a second connection, whatever the server allows.
COMMAND_STREAMS = 100
STREAMS = 1_000


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer; `connects` is how many connections were opened for it."""

    status: int
    version: str
    connects: int
    headers: dict[str, str]
    body: bytes

    @property
    def refusal(self) -> tuple[int, str | None]:
        """Status and reason; the reason of a success is None."""
        return self.status, json.loads(self.body)["reason"] if self.body else None


class Curl(Protocol):
    """A client that runs on libcurl."""

    def ask(
        self,
        server: ConformanceServer,
        requests: Sequence[Request],
        *,
        are_parallel: bool = False,
    ) -> list[Answer]:
        """Ask one after another, or all at once, over as few connections as libcurl likes."""
        ...


def curls() -> list[Curl]:
    """All that can be had here."""
    program = shutil.which("curl")
    has_http2 = program is not None and "HTTP2" in version_of(program)
    return [*([CurlCommand(program)] if program and has_http2 else []), PyCurl()]


def version_of(program: str) -> str:
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout


def parse_headers(head: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in head.splitlines()[1:] if ":" in line)
    return {name.lower(): value.strip() for name, value in pairs}


class CurlCommand:
    """The command, with a configuration file in place of the arguments of a shell script."""

    def __init__(self, program: str) -> None:
        self._program = program

    def ask(
        self,
        server: ConformanceServer,
        requests: Sequence[Request],
        *,
        are_parallel: bool = False,
    ) -> list[Answer]:
        parallel = ["--parallel", "--parallel-max", str(COMMAND_STREAMS)] if are_parallel else []
        with tempfile.TemporaryDirectory() as folder:
            texts = [_configure(server, each, number) for number, each in enumerate(requests)]
            done = subprocess.run(
                [self._program, *parallel, "--silent", "--show-error", "--config", "-"],
                input="next\n".join(texts).encode(),
                cwd=folder,
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            lines = dict(line.split(" ", 1) for line in done.stdout.decode().splitlines())
            return [_read(Path(folder), lines[str(n)], n) for n in range(len(requests))]


def _configure(server: ConformanceServer, request: Request, number: int) -> str:
    url = f"https://localhost:{server.tls_port}{request.path}"
    lines = ["http2", f"cacert = {_quote(str(server.ca_path))}", f"url = {_quote(url)}"]
    lines += [f"request = {request.method}", f"data-binary = {_quote(request.body.decode())}"]
    lines += [f"header = {_quote(f'{name}: {value}')}" for name, value in request.headers]
    lines += [f'dump-header = "{number}.head"', f'output = "{number}.body"']
    lines += [f'write-out = "{number} %{{http_code}} %{{http_version}} %{{num_connects}}\\n"']
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _read(folder: Path, line: str, number: int) -> Answer:
    status, version, connects = line.split()
    body = folder / f"{number}.body"
    return Answer(
        status=int(status),
        version=version,
        connects=int(connects),
        headers=parse_headers((folder / f"{number}.head").read_text()),
        body=body.read_bytes() if body.exists() else b"",
    )


class PyCurl:
    """The library itself, as it comes by pip."""

    def ask(
        self,
        server: ConformanceServer,
        requests: Sequence[Request],
        *,
        are_parallel: bool = False,
    ) -> list[Answer]:
        share = pycurl.CurlMulti()
        share.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        share.setopt(pycurl.M_MAX_CONCURRENT_STREAMS, STREAMS)
        transfers = [_Transfer(server, each) for each in requests]
        try:
            for batch in [transfers] if are_parallel else [[each] for each in transfers]:
                _perform(share, [each.handle for each in batch])
            return [each.answer() for each in transfers]
        finally:
            share.close()


def _perform(share: Any, handles: list[Any]) -> None:
    for handle in handles:
        share.add_handle(handle)
    _, left = share.perform()
    while left:
        share.select(1.0)
        _, left = share.perform()
    _, _, failed = share.info_read(len(handles))
    assert not failed, failed
    for handle in handles:
        share.remove_handle(handle)


class _Transfer:
    def __init__(self, server: ConformanceServer, request: Request) -> None:
        self.handle = pycurl.Curl()
        self._head, self._body = BytesIO(), BytesIO()
        headers = [f"{name}: {value}".encode() for name, value in request.headers]
        for option, value in (
            (pycurl.URL, f"https://localhost:{server.tls_port}{request.path}"),
            (pycurl.CAINFO, str(server.ca_path)),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS),
            (pycurl.PIPEWAIT, 1),
            (pycurl.TIMEOUT, PATIENCE_S),
            (pycurl.HTTPHEADER, headers),
            (pycurl.POSTFIELDS, request.body),
            (pycurl.CUSTOMREQUEST, request.method),
            (pycurl.HEADERFUNCTION, self._head.write),
            (pycurl.WRITEFUNCTION, self._body.write),
        ):
            self.handle.setopt(option, value)

    def answer(self) -> Answer:
        version = self.handle.getinfo(pycurl.INFO_HTTP_VERSION)
        made = Answer(
            status=self.handle.getinfo(pycurl.RESPONSE_CODE),
            version="2" if version == pycurl.CURL_HTTP_VERSION_2_0 else str(version),
            connects=self.handle.getinfo(pycurl.NUM_CONNECTS),
            headers=parse_headers(self._head.getvalue().decode()),
            body=self._body.getvalue(),
        )
        self.handle.close()
        return made
