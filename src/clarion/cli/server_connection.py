"""A command's connection to a running server; a failure is one sentence."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from clarion.client import ApiError, Clarion, NotReached
from clarion.client.errors import UNKNOWN
from clarion.errors import CommandFailed, StartError


def connect(
    url: str, api_key: str = "", *, authority: bytes | None = None, key_origin: str = ""
) -> AbstractContextManager[Clarion]:
    """Return a client of a server, whose errors leave its context as `CommandFailed`.

    `key_origin` says where the key was found, for the error if it is refused.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise StartError(f"--url: must be like http://127.0.0.1:8080, not {url!r}")
    return _connect(url, api_key, authority, key_origin)


@contextmanager
def _connect(url: str, api_key: str, authority: bytes | None, key_origin: str) -> Iterator[Clarion]:
    try:
        with Clarion(url, api_key=api_key, attempts=1, ca=authority, use_proxy=False) as client:
            yield client
    except ApiError as error:
        raise CommandFailed(_explain_error(error, url, key_origin)) from error
    except NotReached as error:
        raise CommandFailed(explain_failure(find_cause(error), url, "--url")) from error
    except ValueError as error:  # a header cannot have such a value
        raise CommandFailed(explain_failure(error, url, "--url")) from error


def path_part(text: str, flag: str) -> str:
    """Quote a text as one segment of a path; `StartError` if it contains a slash."""
    if "/" in text:
        raise StartError(f"{flag}: must not contain a /")
    return quote(text, safe="")


def _explain_error(error: ApiError, url: str, key_origin: str) -> str:
    if error.code == UNKNOWN:
        return (
            f"{url} responded {error.status}, but not like Clarion's API. Is it the right port for "
            "--url?"
        )
    if error.status == HTTPStatus.UNAUTHORIZED:
        refused = f"{url} rejected the API key. It may be revoked, or belong to another server."
        return f"{refused} {key_origin}".rstrip()
    return f"{error.detail.rstrip('.')}. ({error.code})"


def find_cause(error: NotReached) -> Exception:
    """Return the standard library's exception for what the client says of a failure."""
    text = str(error)
    if "timed out" in text:
        return TimeoutError()
    if number := re.search(r"\(os error (\d+)\)", text):
        return OSError(int(number[1]), os.strerror(int(number[1])))
    if "dns error" in text:
        return socket.gaierror()
    if wrong := re.search(r"invalid peer certificate: (?:\w+\()*(\w+)", text):
        unverified = ssl.SSLCertVerificationError()
        unverified.verify_message = wrong[1]
        return unverified
    return ssl.SSLError() if "client error (Connect)" in text else ConnectionResetError()


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
