"""SQL expressions on devices and messages, for statements of other slices."""

from __future__ import annotations

WAITS = "status IN ('pending', 'queued')"
# A message of the notification waits, or was delivered.
HAS_OPEN_MESSAGE = f"""EXISTS (SELECT 1 FROM messages
    WHERE notification_id = :notification_id AND (status = 'delivered' OR {WAITS}))"""

# The device of an attempt.
JOIN_DEVICE = "JOIN devices ON devices.id = attempts.device_id"


def of_waiting(ending: str) -> str:
    """Return the query for the notifications of waiting messages that match a condition."""
    return f"""SELECT notification_id FROM messages
          WHERE {WAITS} AND notification_id IS NOT NULL AND {ending}"""


def has_other(notification_id: str, ending: str) -> str:
    """Return the condition: a message was delivered, or one waits that `ending` does not end."""
    return f"""EXISTS (SELECT 1 FROM messages
          WHERE messages.notification_id = {notification_id}
          AND (messages.status = 'delivered'
            OR (messages.{WAITS} AND ({ending}) IS NOT TRUE)))"""


def platform_of(device_id: str) -> str:
    """Return the platform of a device; empty if the device does not exist."""
    return f"""COALESCE(
      (SELECT devices.platform FROM devices WHERE devices.id = {device_id}), '')"""
