"""With PostgreSQL the page `/demo` says why it does not exist."""

import pytest

from clarion.demo.page import absent_page
from clarion.errors import NotFound
from clarion.http.asgi import Message, Request
from clarion.http.strangers import Peers
from clarion.settings import Settings

LOCAL = {
    "scheme": "http",
    "http_version": "1.1",
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 8080),
    "headers": [],
}


async def receive() -> Message:
    return {"type": "http.request"}


@pytest.mark.parametrize(
    ("client", "said"), [("127.0.0.1", "this server uses PostgreSQL"), ("192.0.2.7", "")]
)
async def test_it_says_so_to_this_machine_alone(client: str, said: str) -> None:
    route = absent_page(Peers.of(Settings()))
    scope = {**LOCAL, "client": (client, 1), "headers": [(b"host", b"127.0.0.1:8080")]}
    with pytest.raises(NotFound) as refused:
        await route.endpoint(Request(scope, receive, "r", None, limit=3))
    assert said in str(refused.value)
    assert said or "PostgreSQL" not in str(refused.value)
