"""Accepts pushes of APNs providers, or raises `Rejected` with the reason.

The order of the checks: duplicate headers, the provider, the push itself (see `request.py`), then
the device: the app has it, it is valid, and below its limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clarion.clock import Clock
from clarion.nodes.port import NodeLimits
from clarion.push.apns.provider_tokens import Provider
from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import Push, parse_push
from clarion.push.dispatch import Dispatch
from clarion.push.model import Device, InvalidationReason
from clarion.push.registry import Registry

_WINDOW_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PushIntake:
    """Accepts pushes to devices."""

    registry: Registry
    dispatch: Dispatch
    limits: NodeLimits
    clock: Clock
    device_per_minute: int
    app_per_minute: int

    async def push(
        self, provider: Provider, headers: Mapping[bytes, bytes], token: str, body: bytes
    ) -> str:
        """Accept a push and return its id, after it is durable."""
        now = self.clock.now()
        push = parse_push(headers, token, body, now)
        if not _is_for(provider.app.bundle_id, push, headers):
            raise Rejected(Reason.TOPIC_DISALLOWED)
        app_id, token_hash = provider.app.id, push.token_hash
        cached = self.registry.get_cached(app_id, token_hash, now)
        device = _check_device(cached or await self.registry.find(app_id, token_hash))
        self._count(device.id, self.device_per_minute, now)
        self._count(device.app_id, self.app_per_minute, now)
        message_id = push.id or self.clock.new_id()
        await self.dispatch.accept(device, push, message_id)
        if not self.registry.is_current(device):
            await self._fail_if_invalid(device, message_id)
        return message_id

    async def _fail_if_invalid(self, device: Device, message_id: str) -> None:
        """Fail a message that was stored after its device was invalidated."""
        known = await self.registry.find(device.app_id, device.token_hash)
        if known is None or known.id != device.id or not known.is_valid:
            await self.dispatch.fail(device, message_id)

    def _count(self, key: str, limit: int, now: int) -> None:
        if self.limits.count(key, window_s=_WINDOW_S, now=now) > limit:
            left_s = self.limits.find_reset_s(window_s=_WINDOW_S, now=now)
            raise Rejected(Reason.TOO_MANY_REQUESTS, retry_after_s=left_s)


def _is_for(bundle_id: str, push: Push, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the topic of the push is this app's.

    Without a push type, what looks like a suffix may be the end of the bundle id itself.
    """
    if push.bundle_id == bundle_id:
        return True
    return b"apns-push-type" not in headers and headers[b"apns-topic"] == bundle_id.encode()


def _check_device(device: Device | None) -> Device:
    # The token of another app is answered as unknown: apps must not find out each other's devices.
    if device is None:
        raise Rejected(Reason.BAD_DEVICE_TOKEN)
    if device.invalidated_at is not None:
        is_expired = device.invalidation_reason is InvalidationReason.TOKEN_EXPIRED
        reason = Reason.EXPIRED_TOKEN if is_expired else Reason.UNREGISTERED
        raise Rejected(reason, timestamp=device.invalidated_at)
    return device
