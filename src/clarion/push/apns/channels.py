"""Broadcast channels of APNs, on the same core as topics: a channel is a topic with a policy."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

import msgspec

from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import (
    LARGE_PAYLOAD_LIMIT_BYTES,
    PRIORITIES,
    check_payload,
    read_expiration,
    read_id,
)
from clarion.push.model import DeviceTopic, Message, PushPriority, StoragePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clarion.clock import Clock
    from clarion.push.apns.provider_tokens import Provider
    from clarion.push.dispatch import Dispatch
    from clarion.push.port import DeviceTopics

CHANNELS_LIMIT = 10_000
LONGEST_LIFE_MS = 8 * 3600 * 1000
PUSH_TYPE = "LiveActivity"
_ID_BYTES = 16


class ChannelConfig(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """How a channel is made, as Apple words it."""

    message_storage_policy: int
    push_type: str


class ChannelDoor:
    """Makes, shows and deletes channels, and publishes to them."""

    def __init__(self, *, topics: DeviceTopics, dispatch: Dispatch, clock: Clock) -> None:
        self._topics = topics
        self._dispatch = dispatch
        self._clock = clock

    async def create(self, provider: Provider, bundle_id: str, body: bytes) -> str:
        """Make a channel and return its id."""
        check_bundle(provider, bundle_id)
        config = _parse_config(body)
        if await self._is_full(provider):
            raise Rejected(Reason.CANNOT_CREATE_CHANNEL_CONFIG)
        channel = DeviceTopic(
            app_id=provider.app.id,
            topic=_new_id(),
            is_broadcast_channel=True,
            storage_policy=StoragePolicy.LAST
            if config.message_storage_policy
            else StoragePolicy.NONE,
            created_at=self._clock.now(),
        )
        await self._topics.create(channel)
        return channel.topic

    async def read(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes]
    ) -> ChannelConfig:
        """Return how a channel was made."""
        check_bundle(provider, bundle_id)
        channel = await self._find(provider, headers)
        return ChannelConfig(int(channel.storage_policy is StoragePolicy.LAST), PUSH_TYPE)

    async def delete(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes]
    ) -> None:
        """Delete a channel for good."""
        check_bundle(provider, bundle_id)
        channel = await self._find(provider, headers)
        await self._topics.delete(provider.app.id, channel.topic, self._clock.now())

    async def list(self, provider: Provider, bundle_id: str) -> list[str]:
        """Return the ids of all channels."""
        check_bundle(provider, bundle_id)
        page = await self._topics.list(
            provider.app.id, broadcast_channels=True, after=None, limit=CHANNELS_LIMIT
        )
        return [channel.topic for channel in page.items]

    async def publish(
        self, provider: Provider, bundle_id: str, headers: Mapping[bytes, bytes], body: bytes
    ) -> str:
        """Send to a channel and return the request's id, after it is durable."""
        check_bundle(provider, bundle_id)
        request_id = read_request_id(headers) or self._clock.new_id()
        _check_push_type(headers)
        channel = await self._find(provider, headers)
        now = self._clock.now()
        storage_policy, expires_at = _read_expiration(headers, channel, now)
        message = Message(
            id=request_id,
            device_id="",
            app_id=provider.app.id,
            sequence=0,
            payload=check_payload(body, LARGE_PAYLOAD_LIMIT_BYTES),
            priority=_read_priority(headers),
            collapse_id=None,
            is_stored=storage_policy is not StoragePolicy.NONE,
            created_at=now,
            expires_at=expires_at,
            topic=channel.topic,
        )
        await self._dispatch.publish(message, storage_policy)
        return request_id

    async def _find(self, provider: Provider, headers: Mapping[bytes, bytes]) -> DeviceTopic:
        given = headers.get(b"apns-channel-id", b"").decode("latin-1")
        if not given:
            raise Rejected(Reason.MISSING_CHANNEL_ID)
        if not _is_id(given):
            raise Rejected(Reason.BAD_CHANNEL_ID)
        channel = await self._topics.get(provider.app.id, given)
        if channel is None or not channel.is_broadcast_channel:
            raise Rejected(Reason.CHANNEL_NOT_REGISTERED)
        return channel

    async def _is_full(self, provider: Provider) -> bool:
        page = await self._topics.list(
            provider.app.id, broadcast_channels=True, after=None, limit=CHANNELS_LIMIT
        )
        return len(page.items) >= CHANNELS_LIMIT


def check_bundle(provider: Provider, bundle_id: str) -> None:
    """Let a provider touch the channels of its own app alone."""
    if bundle_id == provider.app.bundle_id:
        return
    is_suffixed = bundle_id.startswith(provider.app.bundle_id + ".")
    raise Rejected(Reason.TOPIC_DISALLOWED if is_suffixed else Reason.TOPIC_MISMATCH)


def read_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the id of a request; Apple's samples use either header."""
    return read_id(headers, b"apns-request-id") or read_id(headers)


def _new_id() -> str:
    """Make an id of Apple's shape that also fits into a path as it is."""
    while True:
        text = base64.b64encode(secrets.token_bytes(_ID_BYTES)).decode()
        if "/" not in text and "+" not in text:
            return text


def _is_id(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _ID_BYTES
    except ValueError:
        return False


def _parse_config(body: bytes) -> ChannelConfig:
    if not body:
        raise Rejected(Reason.PAYLOAD_EMPTY)
    try:
        config = msgspec.json.decode(body, type=ChannelConfig)
    except msgspec.ValidationError as error:
        raise Rejected(Reason.BAD_REQUEST_PARAMS) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(Reason.BAD_REQUEST_PAYLOAD) from error
    if config.message_storage_policy not in (0, 1):
        raise Rejected(Reason.BAD_REQUEST_PARAMS)
    if config.push_type.lower() != PUSH_TYPE.lower():
        raise Rejected(Reason.INVALID_PUSH_TYPE)
    return config


def _check_push_type(headers: Mapping[bytes, bytes]) -> None:
    given = headers.get(b"apns-push-type")
    if given is None:
        raise Rejected(Reason.MISSING_PUSH_TYPE)
    if given.decode("latin-1").lower() != PUSH_TYPE.lower():
        raise Rejected(Reason.INVALID_PUSH_TYPE)


def _read_priority(headers: Mapping[bytes, bytes]) -> PushPriority:
    priority = PRIORITIES.get(headers.get(b"apns-priority", b"10"))
    if priority is None:
        raise Rejected(Reason.BAD_PRIORITY)
    return priority


def _read_expiration(
    headers: Mapping[bytes, bytes], channel: DeviceTopic, now: int
) -> tuple[StoragePolicy, int]:
    """Return what is kept of the message, and until when it lives.

    A channel that keeps nothing takes only zero; zero keeps nothing on any channel.
    """
    is_stored, expires_at = read_expiration(headers, now)
    if (
        channel.storage_policy is StoragePolicy.NONE
        and headers.get(b"apns-expiration", b"0") != b"0"
    ):
        raise Rejected(Reason.BAD_EXPIRATION_DATE)
    if not is_stored:
        return StoragePolicy.NONE, expires_at
    return channel.storage_policy, min(expires_at, now + LONGEST_LIFE_MS)
