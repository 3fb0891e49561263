"""HTTP calls to a running server, with the standard library alone; a failure is one sentence."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from clarion.errors import CommandFailed, StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

T = TypeVar("T")
_TIMEOUT_S = 30
_GOOD = range(200, 300)
_UNAUTHORIZED = 401


class _Problem(msgspec.Struct):
    """The part of an error of the API that a person reads."""

    detail: str
    code: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_good(self) -> bool:
        """Whether it did what was asked."""
        return self.status in _GOOD


class Calls:
    """One connection to a server, opened by the first call and kept for the next."""

    def __init__(self, url: str, trust: Callable[[], ssl.SSLContext]) -> None:
        self._url = url
        self._connection = _prepare(url, trust)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(
        self, method: str, path: str, headers: Mapping[str, str | bytes], body: bytes = b""
    ) -> Answer:
        """Make a call; `CommandFailed` with a sentence if there is no answer."""
        try:
            self._connection.request(method, path, body, dict(headers))
            response = self._connection.getresponse()
            headers_in = {name.lower(): text for name, text in response.headers.items()}
            return Answer(response.status, headers_in, response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise CommandFailed(explain(error, self._url, "--url")) from error

    def ask_api(
        self, method: str, path: str, *, api_key: str, body: object = None, kind: type[T]
    ) -> T:
        """Call the API; `CommandFailed` with its own sentence if it refuses."""
        headers = {"authorization": f"Bearer {api_key}"}
        sent = b"" if body is None else msgspec.json.encode(body)
        answer = self.ask(method, path, headers, sent)
        if not answer.is_good:
            raise CommandFailed(explain_refusal(answer, self._url))
        try:
            return msgspec.json.decode(answer.body or b"null", type=kind)
        except msgspec.DecodeError as error:
            raise CommandFailed(_not_ours(self._url, answer.status)) from error


def _prepare(url: str, trust: Callable[[], ssl.SSLContext]) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        msg = f"--url: must be like http://127.0.0.1:8080, not {url!r}"
        raise StartError(msg)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=trust())


def path_part(text: str, flag: str) -> str:
    """Return a text as one part of a path, whatever is in it but a slash."""
    if "/" in text:
        msg = f"{flag}: must not have a / in it"
        raise StartError(msg)
    return quote(text, safe="")


def explain(error: Exception, url: str, flag: str) -> str:
    """Return in a sentence why a server gave no answer."""
    match error:
        case ConnectionRefusedError():
            return (
                f"Nothing answers at {url}. Is Clarion running? `make run` starts it; "
                f"{flag} names another address."
            )
        case socket.gaierror():
            return f"There is no host by the name in {url}."
        case TimeoutError():
            return f"{url} does not answer in time."
        case ssl.SSLCertVerificationError():
            return f"The certificate of {url} is not trusted here: {error.verify_message}."
        case ssl.SSLError():
            return f"{url} does not speak TLS as it should. Is it the port of the plain listener?"
        case OSError() if not isinstance(error, ConnectionError):
            return f"Cannot reach {url}: {error.strerror or error}."
        case ValueError():
            return f"Cannot ask {url}: {error}."
        case _:
            return f"{url} does not answer as Clarion does. Is it the right port for {flag}?"


def explain_refusal(answer: Answer, url: str) -> str:
    """Return in a sentence why the API refused."""
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.DecodeError:
        return _not_ours(url, answer.status)
    if answer.status == _UNAUTHORIZED:
        return f"{url} refuses the API key. Is it of this server, and not revoked?"
    return f"{problem.detail.rstrip('.')}. ({problem.code})"


def _not_ours(url: str, status: int) -> str:
    return f"{url} answers {status}, but not as Clarion's API does. Is it the right port for --url?"
