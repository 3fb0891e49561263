"""What a program prints that does not catch an error of the client."""

import asyncio
import sys

from tests.processes import free_port
from tests.unit.channels.http_peers import answering, listening

BODY = b'{"code":"not_found","detail":"There is no user eve.","errors":[]}'
MISSING = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
SCRIPT = """\
from clarion.client import Clarion
clarion = Clarion("http://127.0.0.1:%d", api_key="x", attempts=1)
clarion.get_user("eve")
"""


async def run(port: int) -> list[str]:
    """Return what the program prints: the lines without those that show its own source."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT % port, stderr=asyncio.subprocess.PIPE
    )
    _, printed = await process.communicate()
    return [line for line in printed.decode().splitlines() if not line.startswith("    ")]


async def test_an_error_of_the_server_is_one_line_below_the_call() -> None:
    async with listening(answering(MISSING)) as peer:
        head, call, _raise, error = await run(peer.port)
    assert head == "Traceback (most recent call last):"
    assert call == '  File "<string>", line 3, in <module>'
    assert error == "clarion.client.errors.ApiError: 404 not_found: There is no user eve."


async def test_a_server_that_is_not_there_is_one_line_below_the_call() -> None:
    port = free_port()
    _head, _call, _raise, error = await run(port)
    assert error.startswith(f"clarion.client.errors.NotReached: http://127.0.0.1:{port} did not ")
    assert error.endswith("Connection refused (os error 111)")
