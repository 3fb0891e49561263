"""Broadcast channels of APNs: each is a topic with a storage policy."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from clarion.clock import Clock
from clarion.push.apns.provider_tokens import Provider
from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import (
    LARGE_PAYLOAD_LIMIT_BYTES,
    check_payload,
    read_expiration,
    read_id,
    read_priority,
    read_push_type,
)
from clarion.push.dispatch import Dispatch
from clarion.push.model import Message, StoragePolicy, Topic
from clarion.push.sql.topics import Topics

BROADCAST_CHANNELS_LIMIT = 10_000
MAX_TTL_MS = 8 * 3600 * 1000
PUSH_TYPE = "LiveActivity"
_ID_BYTES = 16


class BroadcastChannelConfig(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """The settings of a broadcast channel, in the format of APNs."""

    message_storage_policy: Annotated[int, msgspec.Meta(ge=0, le=1)]
    push_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastChannels:
    """Creates, lists and deletes broadcast channels, and publishes to them."""

    topics: Topics
    dispatch: Dispatch
    clock: Clock

    async def create(self, provider: Provider, bundle_id: str, body: bytes) -> str:
        """Create a broadcast channel and return its id."""
        check_bundle(provider, bundle_id)
        config = _parse_config(body)
        if len(await self.list(provider, bundle_id)) >= BROADCAST_CHANNELS_LIMIT:
            raise Rejected(Reason.CANNOT_CREATE_CHANNEL_CONFIG)
        channel = Topic(
            app_id=provider.app.id,
            topic=_new_id(),
            is_broadcast_channel=True,
            storage_policy=StoragePolicy(config.message_storage_policy),
            is_open=True,  # its id cannot be guessed: a user has it from the app
            created_at=self.clock.now(),
        )
        await self.topics.create(channel)
        return channel.topic

    async def get(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes]
    ) -> BroadcastChannelConfig:
        """Return the settings of a broadcast channel."""
        check_bundle(provider, bundle_id)
        channel = await self._find(provider, headers)
        return BroadcastChannelConfig(int(channel.storage_policy is StoragePolicy.LAST), PUSH_TYPE)

    async def delete(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes]
    ) -> None:
        """Delete a broadcast channel, its messages and its subscriptions."""
        check_bundle(provider, bundle_id)
        channel = await self._find(provider, headers)
        await self.topics.delete(provider.app.id, channel.topic, self.clock.now())
        self.dispatch.topics.remove_subscribers(provider.app.id, channel.topic)

    async def list(self, provider: Provider, bundle_id: str) -> list[str]:
        """Return the ids of all broadcast channels."""
        check_bundle(provider, bundle_id)
        page = await self.topics.list(
            provider.app.id, broadcast_channels=True, after=None, limit=BROADCAST_CHANNELS_LIMIT
        )
        return [channel.topic for channel in page.items]

    async def publish(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> str:
        """Publish to a broadcast channel; return the request's id after the message is durable."""
        check_bundle(provider, bundle_id)
        request_id = read_request_id(headers) or self.clock.new_id()
        _check_push_type(headers)
        channel = await self._find(provider, headers)
        now = self.clock.now()
        storage_policy, expires_at = _read_expiration(headers, channel, now)
        message = Message(
            id=request_id,
            app_id=provider.app.id,
            payload=check_payload(body, LARGE_PAYLOAD_LIMIT_BYTES),
            priority=read_priority(headers),
            is_stored=storage_policy is not StoragePolicy.NONE,
            created_at=now,
            expires_at=expires_at,
            topic=channel.topic,
        )
        await self.dispatch.topics.publish(message, storage_policy)
        return request_id

    async def _find(self, provider: Provider, headers: Mapping[bytes, bytes]) -> Topic:
        given = headers.get(b"apns-channel-id", b"").decode("latin-1")
        if not given:
            raise Rejected(Reason.MISSING_CHANNEL_ID)
        if not _is_id(given):
            raise Rejected(Reason.BAD_CHANNEL_ID)
        channel = await self.topics.get(provider.app.id, given)
        if channel is None or not channel.is_broadcast_channel:
            raise Rejected(Reason.CHANNEL_NOT_REGISTERED)
        return channel


def check_bundle(provider: Provider, bundle_id: str) -> None:
    """Raise `Rejected` unless the bundle id is that of the provider's app."""
    if bundle_id == provider.app.bundle_id:
        return
    is_suffixed = bundle_id.startswith(provider.app.bundle_id + ".")
    raise Rejected(Reason.TOPIC_DISALLOWED if is_suffixed else Reason.TOPIC_MISMATCH)


def read_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the id of a request; Apple's examples use either header."""
    return read_id(headers, b"apns-request-id") or read_id(headers)


def _new_id() -> str:
    """Generate an id in the format of APNs that needs no escaping in a path."""
    while True:
        text = base64.b64encode(secrets.token_bytes(_ID_BYTES)).decode()
        if "/" not in text and "+" not in text:
            return text


def _is_id(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _ID_BYTES
    except ValueError:
        return False


def _parse_config(body: bytes) -> BroadcastChannelConfig:
    if not body:
        raise Rejected(Reason.PAYLOAD_EMPTY)
    try:
        config = msgspec.json.decode(body, type=BroadcastChannelConfig)
    except msgspec.ValidationError as error:
        raise Rejected(Reason.BAD_REQUEST_PARAMS) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(Reason.BAD_REQUEST_PAYLOAD) from error
    if config.push_type.lower() != PUSH_TYPE.lower():
        raise Rejected(Reason.INVALID_PUSH_TYPE)
    return config


def _check_push_type(headers: Mapping[bytes, bytes]) -> None:
    push_type = read_push_type(headers)
    if push_type is None:
        raise Rejected(Reason.MISSING_PUSH_TYPE)
    if push_type != PUSH_TYPE.lower():
        raise Rejected(Reason.INVALID_PUSH_TYPE)


def _read_expiration(
    headers: Mapping[bytes, bytes], channel: Topic, now: int
) -> tuple[StoragePolicy, int]:
    """Return how the message is stored, and when it expires.

    A broadcast channel that stores nothing accepts only zero; zero stores nothing anywhere.
    """
    is_stored, expires_at = read_expiration(headers, now)
    is_zero = headers.get(b"apns-expiration", b"0") == b"0"
    if channel.storage_policy is StoragePolicy.NONE and not is_zero:
        raise Rejected(Reason.BAD_EXPIRATION_DATE)
    if not is_stored:
        return StoragePolicy.NONE, expires_at
    return channel.storage_policy, min(expires_at, now + MAX_TTL_MS)
