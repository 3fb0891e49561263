"""Requests that are accepted, and a server with devices and channels that a bad one can name."""

import asyncio
import json
from dataclasses import dataclass

from tests.conformance.clients.http2 import Answer, Http2, Request, connected
from tests.conformance.device import Api
from tests.conformance.other_apps import OtherApps
from tests.conformance.provider import Provider
from tests.conformance.server import ConformanceServer
from tests.replacing import replace

PAYLOAD = b'{"aps":{"alert":"hi"}}'
STATE = b'{"aps":{"event":"update","timestamp":1,"content-state":{"score":1}}}'
UNKNOWN_TOKEN = "0" * 64
UNKNOWN_CHANNEL = "AAAAAAAAAAAAAAAAAAAAAA=="


def bearer(token: str) -> tuple[str, str]:
    return "authorization", f"bearer {token}"


def push(provider: Provider, device_token: str) -> Request:
    """A push that is accepted."""
    return Request(
        path=f"/3/device/{device_token}",
        headers=(bearer(provider.token()), ("apns-topic", provider.bundle_id)),
        body=PAYLOAD,
    )


def broadcast(provider: Provider, channel_id: str) -> Request:
    """A broadcast that is accepted on any channel."""
    return Request(
        path=f"/4/broadcasts/apps/{provider.bundle_id}",
        headers=(
            bearer(provider.token()),
            ("apns-channel-id", channel_id),
            ("apns-push-type", "liveactivity"),
            ("apns-expiration", "0"),
        ),
        body=STATE,
    )


def create(provider: Provider, policy: int) -> Request:
    """A request for a new channel."""
    config = {"message-storage-policy": policy, "push-type": "LiveActivity"}
    return Request(
        path=f"/1/apps/{provider.bundle_id}/channels",
        headers=(bearer(provider.token()),),
        body=json.dumps(config).encode(),
    )


def manage(provider: Provider, method: str, channel_id: str) -> Request:
    """A request to read or delete a channel."""
    asked = replace(create(provider, 0), method=method, body=b"")
    return asked.but("apns-channel-id", channel_id)


def list_all(provider: Provider) -> Request:
    asked = replace(create(provider, 0), method="GET", body=b"")
    return replace(asked, path=f"/1/apps/{provider.bundle_id}/all-channels")


@dataclass(frozen=True, kw_only=True)
class PreparedServer:
    """A server with devices in every state and channels of every storage policy."""

    server: ConformanceServer
    provider: Provider
    other_apps: OtherApps
    valid: str  # device tokens
    revoked: str
    expired: str
    theirs: str
    keeping: str  # channel ids
    passing: str
    deleted: str

    async def ask(self, request: Request) -> Answer:
        """Ask on a connection of its own, as a new provider would."""
        async with connected(self.server.tls_port, self.server.ca_path) as client:
            return await client.ask(request)


def prepare_server(
    server: ConformanceServer, provider: Provider, other_apps: OtherApps
) -> PreparedServer:
    return asyncio.run(_prepare_server(server, provider, other_apps))


async def _prepare_server(
    server: ConformanceServer, provider: Provider, other_apps: OtherApps
) -> PreparedServer:
    api, other_api = Api(server.port, provider), Api(server.port, other_apps.other)
    valid, revoked, expired = [await api.register() for _ in range(3)]
    await api.invalidate(revoked)
    await api.invalidate(expired, "token_expired")
    async with connected(server.tls_port, server.ca_path) as client:
        keeping, passing, deleted = await _make_channels(client, provider)
    return PreparedServer(
        server=server,
        provider=provider,
        other_apps=other_apps,
        valid=valid.token,
        revoked=revoked.token,
        expired=expired.token,
        theirs=(await other_api.register()).token,
        keeping=keeping,
        passing=passing,
        deleted=deleted,
    )


async def _make_channels(client: Http2, provider: Provider) -> list[str]:
    identity = bearer(provider.token())
    answers = [await client.ask(create(provider, n).but(*identity)) for n in (1, 0, 1)]
    channels = [answer.headers["apns-channel-id"].decode() for answer in answers]
    await client.ask(manage(provider, "DELETE", channels[2]).but(*identity))
    return channels
