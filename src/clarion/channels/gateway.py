"""Our own gateway as a provider: it needs no settings, and every app has it."""

from __future__ import annotations

from dataclasses import dataclass

from clarion.access.port import Vault
from clarion.channels.model import Address, OutgoingMessage
from clarion.channels.payloads import (
    apns_priority,
    build_push_payload,
    build_topic_payload,
    collapse_id,
)
from clarion.clock import Clock
from clarion.events.model import Event
from clarion.push.model import (
    Device,
    Message,
    MessageContent,
    PushPriority,
    StoredMessage,
    make_message_id,
)
from clarion.push.port import Dispatch

# As for a push without an expiration.
LIFETIME_MS = 30 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class PushDevices:
    """Addresses pushes to devices of other services, and makes messages for those of our own."""

    gateway: Dispatch
    vault: Vault
    clock: Clock

    def find_address(self, device: Device) -> Address:
        """Return the address of a device; its value is empty if our own gateway reaches it."""
        if device.address is None:
            return Address(device.id, "", device.platform)
        value = self.vault.open(device.address, device.address_context).decode()
        return Address(device.id, value, device.platform)

    def make_message(self, device: Device, message: OutgoingMessage) -> StoredMessage:
        """Return the message for a device of our own gateway: the same id for every attempt."""
        notification, latest = message.notification, self.clock.now() + LIFETIME_MS
        content = MessageContent(
            priority=PushPriority(apns_priority(notification.priority)),
            collapse_id=collapse_id(message),
            is_stored=True,
            expires_at=min(notification.expires_at or latest, latest),
            payload=build_push_payload(message),
        )
        message_id = make_message_id(notification.id, device.id)
        made = self.gateway.make_message(device, content, message_id, notification.id)
        return StoredMessage(*made)

    def make_topic_message(self, event: Event, category: str) -> Message:
        """Return the message to the devices of the topic that an event was published to."""
        latest = event.created_at + LIFETIME_MS
        return Message(
            id=self.clock.new_id(),
            app_id=event.app_id,
            topic=event.audience.topic,
            payload=build_topic_payload(event, category),
            priority=PushPriority(apns_priority(event.priority)),
            is_stored=True,
            created_at=event.created_at,
            expires_at=min(event.expires_at or latest, latest),
        )
