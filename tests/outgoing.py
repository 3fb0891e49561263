"""Makes what senders are tested with: messages, and what a sender is opened with."""

from ipaddress import ip_network
from typing import Any

import msgspec

from clarion.catalog.model import Channel
from clarion.channels.http_clients import HttpClients
from clarion.channels.kinds import ProviderKind
from clarion.channels.model import Address, Configuration, OutgoingMessage
from clarion.channels.port import Sender, SenderContext
from clarion.channels.targets import Targets
from clarion.clock import Clock, SystemClock
from clarion.history.model import Content
from tests.factories import make_user
from tests.pipeline import make_event, make_notification

LOOPBACK = ip_network("127.0.0.0/8")


def make_outgoing(
    address: str,
    *,
    id: str = "n1/push/d1",  # noqa: A002
    subject: str | None = "Bo",
    body: str = "said something",
    count: int = 1,
    content: Content | None = None,
    **notification: Any,
) -> OutgoingMessage:
    """Return a message to a device; the rest are fields of its notification."""
    event = make_event() if content is None else make_event(content=content)
    return OutgoingMessage(
        id=id,
        notification=make_notification(event, **notification),
        user=make_user("ana"),
        address=Address("d1", address),
        subject=subject,
        body=body,
        count=count,
        attempt=1,
    )


def open_http(*, is_loopback_allowed: bool = True) -> HttpClients:
    return HttpClients(Targets([LOOPBACK] if is_loopback_allowed else []))


def make_context(http: HttpClients, clock: Clock | None = None) -> SenderContext:
    return SenderContext(
        clock=clock or SystemClock(), http=http, public_url="https://clarion.example"
    )


def open_sender(
    kind: ProviderKind,
    context: SenderContext,
    settings: dict[str, object],
    secrets: dict[str, object],
    timeout_s: float = 10.0,
) -> Sender:
    """Open a sender as the server does: decoded, and without a fault."""
    decoded = msgspec.convert(settings, kind.settings), msgspec.convert(secrets, kind.secrets)
    assert list(kind.find_faults(*decoded)) == []
    configuration = Configuration(
        app_id="app",
        channel=Channel.PUSH,
        name=kind.name,
        settings=decoded[0],
        secrets=decoded[1],
        timeout_s=timeout_s,
        concurrency=32,
    )
    return kind.open(configuration, context)
