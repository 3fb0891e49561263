"""Why another server could not be used, in words."""

import asyncio
import errno
import socket
import ssl

import pytest

from clarion.system.connection_faults import describe_fault

HOST = "smtp.demo.invalid"


def certificate_fault() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "certificate has expired"
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "The host smtp.demo.invalid was not found (EAI_NONAME)",
        ),
        (
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure"),
            (
                "The name smtp.demo.invalid cannot be resolved now: the DNS server does not "
                "answer (EAI_AGAIN)"
            ),
        ),
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 25)"),
            "The host smtp.demo.invalid refused the connection (ECONNREFUSED)",
        ),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 25, 0, 0)"),
            "The host smtp.demo.invalid refused the connection (ECONNREFUSED)",
        ),
        (TimeoutError(), "The host smtp.demo.invalid did not answer in time (TimeoutError)"),
        (
            certificate_fault(),
            (
                "The certificate of smtp.demo.invalid is not valid: certificate has expired "
                "(SSLCertVerificationError)"
            ),
        ),
        (
            ssl.SSLError(1, "wrong version number"),
            "The TLS handshake with smtp.demo.invalid failed (SSLError)",
        ),
        (
            asyncio.IncompleteReadError(b"secret", 9),
            "The connection to smtp.demo.invalid was lost (IncompleteReadError)",
        ),
        (OSError("10.0.0.1"), "The connection to smtp.demo.invalid failed (OSError)"),
    ],
    ids=str,
)
def test_a_fault_is_described_with_its_technical_name(error: Exception, text: str) -> None:
    assert describe_fault(error, HOST) == text
