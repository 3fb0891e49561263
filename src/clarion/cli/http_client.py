"""HTTP requests to a running server, with the standard library; a failure is one sentence."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from clarion.errors import CommandFailed, StartError

T = TypeVar("T")
_TIMEOUT_S = 30
_PART_BYTES = 65_536


class _Problem(msgspec.Struct):
    """The fields of an API error that are shown."""

    detail: str
    code: str


@dataclass(frozen=True, slots=True)
class Response:
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_success(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES


class HttpClient:
    """One connection to a server, opened by the first request and kept for the next."""

    def __init__(
        self,
        url: str,
        tls_context: Callable[[], ssl.SSLContext],
        api_key: str = "",
        *,
        key_origin: str = "",
    ) -> None:
        self._url = url
        self._api_key = api_key
        # Where the key was found, for the error if it is refused.
        self._key_origin = key_origin
        self._connection = _prepare(url, tls_context)
        self.close = self._connection.close

    def request(
        self, method: str, path: str, headers: Mapping[str, str | bytes], body: bytes = b""
    ) -> Response:
        """Send a request; `CommandFailed` if there is no response."""
        try:
            self._connection.request(method, path, body, dict(headers))
            response = self._connection.getresponse()
            received = {name.lower(): text for name, text in response.headers.items()}
            return Response(response.status, received, response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise CommandFailed(explain_failure(error, self._url, "--url")) from error

    def download_api(self, path: str, write: Callable[[bytes], object]) -> None:
        """Read a response of any size, and write it as it comes; `CommandFailed` if it is cut."""
        try:
            headers = {"authorization": f"Bearer {self._api_key}"}
            self._connection.request("GET", path, headers=headers)
            response = self._connection.getresponse()
            if response.status != HTTPStatus.OK:
                failed = Response(response.status, {}, response.read())
                raise CommandFailed(self._explain(failed))
            while part := response.read(_PART_BYTES):
                write(part)
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            self._connection.close()
            raise CommandFailed(explain_failure(error, self._url, "--url")) from error

    def request_api(self, method: str, path: str, body: object = None, *, returns: type[T]) -> T:
        """Call the API; `CommandFailed` with the API's own error text if it refuses."""
        sent = b"" if body is None else msgspec.json.encode(body)
        return self.read(self._call(method, path, sent, {}), returns)

    def post_json(self, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """Call the API with a body that is JSON already."""
        return self._call("POST", path, body, headers)

    def _call(self, method: str, path: str, body: bytes, more: Mapping[str, str]) -> Response:
        headers = {"authorization": f"Bearer {self._api_key}", **more}
        if body:
            headers["content-type"] = "application/json"
        return self.request(method, path, headers, body)

    def read(self, response: Response, returns: type[T]) -> T:
        """Return what a response of the API holds; `CommandFailed` as in `request_api`."""
        if not response.is_success:
            raise CommandFailed(self._explain(response))
        try:
            return msgspec.json.decode(response.body or b"null", type=returns)
        except msgspec.DecodeError as error:
            raise CommandFailed(_not_clarion(self._url, response.status)) from error

    def _explain(self, response: Response) -> str:
        explained = _explain_problem(response, self._url)
        is_refused = response.status == HTTPStatus.UNAUTHORIZED
        return f"{explained} {self._key_origin}".rstrip() if is_refused else explained


def _prepare(url: str, tls_context: Callable[[], ssl.SSLContext]) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https"):
        raise StartError(f"--url: must be like http://127.0.0.1:8080, not {url!r}")
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=tls_context())


def path_part(text: str, flag: str) -> str:
    """Quote a text as one segment of a path; `StartError` if it contains a slash."""
    if "/" in text:
        raise StartError(f"{flag}: must not contain a /")
    return quote(text, safe="")


def explain_failure(error: Exception, url: str, flag: str) -> str:
    """Return one sentence that says why there was no response."""
    match error:
        case ConnectionRefusedError():
            return (
                f"No server is listening at {url}. Start Clarion with `make run`, or give "
                f"another address with {flag}."
            )
        case socket.gaierror():
            return f"The host name in {url} cannot be resolved."
        case TimeoutError():
            return f"{url} did not respond in time."
        case ssl.SSLCertVerificationError():
            return f"The certificate of {url} is not trusted: {error.verify_message}."
        case ssl.SSLError():
            return f"The TLS handshake with {url} failed. Is this the port of the plain listener?"
        case OSError() if not isinstance(error, ConnectionError):
            return f"Cannot reach {url}: {error.strerror or error}."
        case ValueError():
            return f"Cannot send a request to {url}: {error}."
        case _:
            return f"{url} does not respond like Clarion. Is it the right port for {flag}?"


def _explain_problem(response: Response, url: str) -> str:
    try:
        problem = msgspec.json.decode(response.body, type=_Problem)
    except msgspec.DecodeError:
        return _not_clarion(url, response.status)
    if response.status == HTTPStatus.UNAUTHORIZED:
        return f"{url} rejected the API key. It may be revoked, or belong to another server."
    return f"{problem.detail.rstrip('.')}. ({problem.code})"


def _not_clarion(url: str, status: int) -> str:
    return f"{url} responded {status}, but not like Clarion's API. Is it the right port for --url?"
