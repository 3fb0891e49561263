"""Why another server could not be used, in words, with the technical name."""

from __future__ import annotations

import errno
import re
import socket
import ssl

# asyncio reports the failures of all addresses of a name in one text.
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_SYSTEM = {
    errno.ECONNREFUSED: "the host {host} refused the connection",
    errno.ECONNRESET: "the host {host} closed the connection",
    errno.EPIPE: "the host {host} closed the connection",
    errno.ETIMEDOUT: "the host {host} did not answer in time",
    errno.EHOSTUNREACH: "the host {host} cannot be reached: there is no route to it",
    errno.ENETUNREACH: "the host {host} cannot be reached: there is no route to it",
    errno.EMFILE: "this process has too many open files to connect to {host}",
    errno.ENFILE: "this machine has too many open files to connect to {host}",
    errno.ENOENT: "{host} does not exist: is the server running?",
    errno.EACCES: "this account may not connect to {host}",
}
_NAMES = {
    getattr(socket, name): name
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_AGAIN", "EAI_FAIL", "EAI_ADDRFAMILY")
    if hasattr(socket, name)
}


def describe_fault(error: BaseException, host: str) -> str:
    """Return a sentence such as `The host mail.example.com was not found (EAI_NONAME)`.

    It has no address but the given host, and nothing that the other server sent.
    """
    words, name = _describe(error, host)
    return f"{words[0].upper()}{words[1:]} ({name})"


def _describe(error: BaseException, host: str) -> tuple[str, str]:
    kind = type(error).__name__
    match error:
        case socket.gaierror():
            return _describe_name(error, host)
        case ssl.SSLCertVerificationError():
            return f"the certificate of {host} is not valid: {error.verify_message}", kind
        case ssl.SSLError():
            return f"the TLS handshake with {host} failed", getattr(error, "reason", None) or kind
        case OSError() if (number := _find_number(error)) in _SYSTEM:
            return _SYSTEM[number].format(host=host), errno.errorcode[number]
        case TimeoutError():
            return f"the host {host} did not answer in time", kind
        case EOFError() | ConnectionError():
            return f"the connection to {host} was lost", kind
        case _:
            return f"the connection to {host} failed", kind


def _describe_name(error: socket.gaierror, host: str) -> tuple[str, str]:
    name = _NAMES.get(error.errno or 0, "gaierror")
    if name == "EAI_AGAIN":
        return f"the name {host} cannot be resolved now: the DNS server does not answer", name
    return f"the host {host} was not found", name


def _find_number(error: OSError) -> int:
    if error.errno:
        return error.errno
    found = _ERRNO.search(str(error))
    return int(found[1]) if found else 0
