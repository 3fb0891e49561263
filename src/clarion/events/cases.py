"""Reads the cases of a whole batch: each kind of fact in one read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from clarion.catalog.model import Channel, Overflow, Priority
from clarion.catalog.port import CatalogEntry
from clarion.channels.port import AppChannels
from clarion.events.decide.case import Case, Limit
from clarion.events.model import EarlierNotification
from clarion.events.port import PipelinePorts
from clarion.events.rendering import LIKE_INBOX
from clarion.history.model import Content, PublishedTo
from clarion.pacing import WorkSlices
from clarion.people.model import User
from clarion.push.model import Device

HOUR_MS = 3_600_000
# Of a user with more devices, those seen last are sent to. By default users have three.
DEVICES_LIMIT = 100
_INBOX_ALONE = (Channel.IN_APP,)
# Devices have a rule of their own.
_WITHOUT_ADDRESS = frozenset({Channel.IN_APP, Channel.PUSH})


class DecisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for decisions: an event or notification for one user, on some channels."""

    app_id: str
    user_id: str
    entry: CatalogEntry
    priority: Priority
    content: Content
    channels: tuple[Channel, ...]
    expires_at: int | None
    dedupe_key: str | None = None
    is_limited: bool = True  # whether hourly limits apply
    is_read: bool = False
    now: int

    @property
    def dedupe_id(self) -> str | None:
        """The user's dedupe key for this type; None if the type or the event has none."""
        if self.dedupe_key is None or self.entry.type.dedupe is None:
            return None
        return f"{self.user_id}\n{self.entry.type.type}\n{self.dedupe_key}"

    def digest_id(self, channel: Channel) -> str:
        """Return the id of the job that sends the digest."""
        return f"digest/{self.app_id}/{self.user_id}/{channel}/{self.entry.type.type}"


class FrequencyCaps(NamedTuple):
    """How many notifications of a category, and in all, a user gets in an hour; 0: no cap."""

    per_category: int = 0
    per_user: int = 0

    def limits_of(self, request: DecisionRequest) -> tuple[Limit, ...]:
        """Return the limits that apply in this hour, with no uses counted yet."""
        definition, hour = request.entry.type, request.now // HOUR_MS
        rate_limit = definition.rate_limit
        if not request.is_limited or (rate_limit is None and not any(self)):
            return ()
        limits = []
        if rate_limit is not None:
            key = f"{request.user_id}\n{definition.type}\n{hour}"
            limits.append(Limit(key, rate_limit.per_user_per_hour, rate_limit.overflow, 0))
        if self.per_category:
            key = f"{request.user_id}\n\n{definition.category}\n{hour}"
            limits.append(Limit(key, self.per_category, Overflow.WAIT, 0))
        if self.per_user:
            limits.append(Limit(f"{request.user_id}\n\n{hour}", self.per_user, Overflow.WAIT, 0))
        return tuple(limits)


# Returns the caps of an app.
FindCaps = Callable[[str], Awaitable[FrequencyCaps]]


class PreparedCase(msgspec.Struct, frozen=True):
    """A case, with what is needed to apply its decisions."""

    request: DecisionRequest
    case: Case


class _Facts(NamedTuple):
    """The data that was read for a whole batch."""

    caps: FrequencyCaps
    channels: AppChannels
    used: Mapping[str, int]
    devices: Mapping[str, tuple[Device, ...]]
    # The messages to topics, each with a device that gets it there.
    topic_messages: Collection[tuple[str, str]]

    def split_devices(
        self, user_id: str, published: PublishedTo | None
    ) -> tuple[tuple[Device, ...], bool]:
        """Return the devices of a user that a push is for, and whether a topic reaches others."""
        devices = self.devices.get(user_id, ())
        if published is None:
            return devices, False
        left = tuple(
            each
            for each in devices
            # Messages to topics come by a connection to our gateway.
            if each.address is not None
            or (published.message_id, each.id) not in self.topic_messages
        )
        return left, len(left) < len(devices)


@dataclass(frozen=True, slots=True)
class CaseReader:
    """Reads what the rules need to know, for many requests at once."""

    ports: PipelinePorts
    find_caps: FindCaps

    async def read(self, requests: Sequence[DecisionRequest]) -> list[PreparedCase]:
        """Return a case for each request, in order. All are of one app."""
        if not requests:
            return []
        app_id, now, claims = requests[0].app_id, requests[0].now, self.ports.claims
        users = await self.ports.users.find_many(app_id, {each.user_id for each in requests})
        keys = {key for each in requests if (key := each.dedupe_id) is not None}
        earlier = await claims.find_earlier(app_id, keys, now) if keys else {}
        caps = await self.find_caps(app_id)
        limits = {limit.id for each in requests for limit in caps.limits_of(each)}
        used = await claims.find_limit_counts(app_id, limits) if limits else {}
        channels = await self.ports.channels.find(app_id)
        pushed = {each.user_id for each in requests if Channel.PUSH in each.channels}
        devices = await self._read_devices(app_id, pushed, channels) if pushed else {}
        facts = _Facts(caps, channels, used, devices, await self._find_reached(requests, devices))
        slices, prepared = WorkSlices(), []
        for each in requests:
            user, before = users.get(each.user_id), earlier.get(each.dedupe_id or "")
            prepared.append(self._prepare(each, user, before, facts))
            await slices.pause()
        return prepared

    async def _read_devices(
        self, app_id: str, user_ids: Collection[str], channels: AppChannels
    ) -> dict[str, tuple[Device, ...]]:
        """Return the valid devices that a push reaches, by user."""
        found = await self.ports.devices.valid_of_users(app_id, user_ids, DEVICES_LIMIT)
        return {
            user_id: tuple(each for each in some if _is_reachable(each, channels))
            for user_id, some in found.items()
        }

    async def _find_reached(
        self, requests: Sequence[DecisionRequest], devices: Mapping[str, tuple[Device, ...]]
    ) -> Collection[tuple[str, str]]:
        published = [each.content.published_to for each in requests if each.content.published_to]
        ids = [each.id for some in devices.values() for each in some] if published else []
        if not ids:
            return ()
        messages = {each.message_id: each.topic for each in published}
        return await self.ports.broadcasts.find_reached(requests[0].app_id, messages, ids)

    def _prepare(
        self,
        request: DecisionRequest,
        user: User | None,
        earlier: EarlierNotification | None,
        facts: _Facts,
    ) -> PreparedCase:
        published = request.content.published_to
        devices, has_topic_devices = facts.split_devices(request.user_id, published)
        case = Case(
            now=request.now,
            type=request.entry.type,
            priority=request.priority,
            channels=request.channels,
            templates=_templates_of(request.entry),
            available=facts.channels.available,
            expires_at=request.expires_at,
            is_read=request.is_read,
            user=user,
            addresses=_find_reachable(request, user, facts.channels),
            devices=devices,
            has_topic_devices=has_topic_devices,
            earlier=earlier,
            limits=tuple(
                Limit(each.id, each.per_hour, each.overflow, facts.used.get(each.id, 0))
                for each in facts.caps.limits_of(request)
            ),
            next_hour_at=(request.now // HOUR_MS + 1) * HOUR_MS,
        )
        return PreparedCase(request, case)


def _is_reachable(device: Device, channels: AppChannels) -> bool:
    """Whether our own gateway reaches a device, or a provider of its platform."""
    return device.address is None or device.platform in channels.platforms


def _find_reachable(
    request: DecisionRequest, user: User | None, channels: AppChannels
) -> frozenset[Channel]:
    """Return the channels of a request for which the user has an address."""
    if user is None or request.channels == _INBOX_ALONE:
        return _WITHOUT_ADDRESS
    type_name = request.entry.type.type
    found = (c for c in request.channels if channels.find_addresses(c, type_name, user))
    return _WITHOUT_ADDRESS.union(found)


def _templates_of(entry: CatalogEntry) -> frozenset[Channel]:
    return entry.channels | LIKE_INBOX if Channel.IN_APP in entry.channels else entry.channels
