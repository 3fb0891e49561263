"""Which addresses can be listened on."""

import socket

import pytest

from clarion.errors import StartError
from clarion.http.listeners import check_free
from clarion.setting_types import Address
from tests.processes import free_port


def test_free_addresses_are_fine() -> None:
    port = free_port()
    check_free([("--listen", Address("127.0.0.1", port))])
    with socket.create_server(("127.0.0.1", port)) as listener:
        assert listener.getsockname()[1] == port


def test_every_address_that_cannot_be_used_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError) as raised:
            check_free(
                [
                    ("--listen", Address("127.0.0.1", port)),
                    ("--tls-listen", Address("127.0.0.1", free_port())),
                    ("--gateway-listen", Address("192.0.2.1", 8081)),
                    ("--gateway-tls-listen", Address("no.such.host.invalid", 8082)),
                ]
            )
    lines = raised.value.detail.splitlines()
    assert lines[0] == (
        f"--listen: port {port} is in use. Stop the program that uses it, or choose another port."
    )
    assert [line.split(":")[0] for line in lines] == [
        "--listen",
        "--gateway-listen",
        "--gateway-tls-listen",
    ]
