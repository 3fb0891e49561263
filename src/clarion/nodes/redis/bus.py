"""The bus over Redis or Valkey: sharded channels, and hashes of which node holds which device.

A node subscribes to its own channel and to sixteen for all nodes, and publishes on one of these.
Messages of one turn of the loop are sent in one write, and reach each node as one frame.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any
from zlib import crc32

import hiredis
import msgspec

from clarion.clock import Clock
from clarion.nodes.bus import BusCounts, DropReason
from clarion.nodes.receivers import Receivers
from clarion.nodes.redis.breaker import RedisBreaker
from clarion.nodes.redis.client import FAILURES, slot_of
from clarion.nodes.redis.link import TIMEOUT_S, Command, RedisLink, RedisRefused
from clarion.nodes.redis.members import GONE_S, SILENT_S, Members
from clarion.nodes.redis.outbox import (
    ForAll,
    Note,
    Outbox,
    decode_for_all,
    decode_for_node,
    encode,
    pack_for_all,
    pack_for_node,
)
from clarion.nodes.redis.presence import PARTS, DevicePresence, read_changes, read_holders
from clarion.nodes.redis.scripts import EXPIRES_S
from clarion.pacing import cut
from clarion.telemetry.logs import get_logger

# How often a node sends a probe to itself; if it does not arrive by the next one, the subscription
# is lost.
PROBE_EVERY_S = 1.0
# After a stall of the loop the probe may still be in a socket.
_SECOND_LOOK_S = 0.25
# A third of the time after which presence expires.
BEAT_EVERY_S = 20.0
# Devices in one step when presence is written: a few milliseconds of work.
_AT_A_TIME = 1_000
# Changes that are kept while Redis is unavailable. Everything is written again afterwards anyway.
_CHANGES_LIMIT = 200_000
_HOPS_LIMIT = 1
# The subject by which a node reports that others may have missed something.
_MISSED = ""
_MISSED_AFTER_S = 0.2
_CLOSE_WITHIN_S = 1.0
# How long a check waits for a node that has just found Redis.
_BEGINS_WITHIN_S = 1.0


class SubscriptionLost(ConnectionError):
    """A node did not receive its own probe."""


class RedisBus:
    """The `Bus` port of one node. Its `loops` must run until `close`."""

    def __init__(
        self,
        breaker: RedisBreaker,
        clock: Clock,
        *,
        name: str,
        node_id: str = "",
        probe_every_s: float = PROBE_EVERY_S,
        beat_every_s: float = BEAT_EVERY_S,
        silent_s: float = SILENT_S,
        gone_s: float = GONE_S,
    ) -> None:
        self._breaker = breaker
        self._client = breaker.client
        self._client.on_push = self._receive
        self._clock = clock
        self._probe_every_s = probe_every_s
        self._beat_every_s = beat_every_s
        # Several processes may have one name, and a process that restarts is another node.
        self.node = f"{name}.{clock.new_id()[-8:]}"
        self.counts = BusCounts()
        self._receivers = Receivers()
        self.subscribe = self._receivers.subscribe
        self.on_gap = self._receivers.on_gap
        self.on_replaced = self._receivers.on_replaced
        namespace = self._client.namespace
        self._name_channels(namespace)
        self._presence = DevicePresence(namespace, self.node)
        self._members = Members(namespace, self.node, node_id, silent_s=silent_s, gone_s=gone_s)
        # Returns the names of the nodes in the store, by their ids.
        self.list_living: Callable[[], Mapping[str, str]] = dict
        # Whether other nodes have missed messages of this one, which is to be published.
        self._was_missed = False
        self._missing: asyncio.TimerHandle | None = None
        self._held: dict[str, int] = {}
        # Since when devices are held, where others do not know it yet; None: released.
        self._changes: dict[str, int | None] = {}
        # By former holder: devices that this node took over, and since when.
        self._replaced: dict[str, dict[str, int]] = defaultdict(dict)
        # Holders that have no subscriber any more, and their devices.
        self._gone: list[tuple[str, Sequence[str]]] = []
        self._outbox = Outbox()
        # The numbers of changes that were taken to be sent, and that others know of; and the
        # callers that wait until the latter reaches a number.
        self._taken = self._done = 0
        self._settling: list[tuple[int, asyncio.Future[None]]] = []
        self._subscribed = asyncio.Event()
        self._wake = asyncio.Event()
        self._probe_number = 0
        self._probes_received: dict[bytes, bytes] = {}

    def _name_channels(self, namespace: str) -> None:
        self._node_channel = namespace + ":node:{{{}}}"
        self._own_channel = self._node_channel.format(self.node)
        self._own_channel_bytes = self._own_channel.encode()
        self._all_channels = [f"{namespace}:all:{{{part:02}}}" for part in range(PARTS)]
        self._all_channel_bytes = frozenset(each.encode() for each in self._all_channels)
        self._spoken_channel = self._all_channels[crc32(self.node.encode()) % PARTS]
        self._spoken_slot = slot_of(self._spoken_channel)
        # In the slots of the channels for all, so that each server is probed. For this node alone.
        self._probe_channels = {
            slot_of(each): f"{namespace}:probe:{each.rpartition(':')[2]}:{self.node}"
            for each in self._all_channels
        }
        # How the frames of this node begin: it receives its own.
        self._own_head = encode(ForAll(self.node, {}))[:-1]

    @property
    def is_connected(self) -> bool:
        return self._is_joined and not self._members.silent

    @property
    def _is_joined(self) -> bool:
        """Whether this node is subscribed and Redis is available."""
        return self._subscribed.is_set() and not self._breaker.is_open

    async def check(self) -> None:
        """Return if this node receives from all others: the `Dependency` port."""
        await self._breaker.check()
        async with asyncio.timeout(_BEGINS_WITHIN_S):
            await self._subscribed.wait()
        if self._members.silent:
            raise SubscriptionLost

    @property
    def loops(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """The background loops, by name."""
        return {"bus_send": self.send, "bus_watch": self.watch, "bus_presence": self.beat}

    def publish(self, subject: str, data: bytes) -> None:
        if self._breaker.is_open:
            self._drop(DropReason.UNAVAILABLE, 1)
        elif self._outbox.add(subject, data):
            self._wake.set()
        else:
            self._drop(DropReason.FULL, 1)

    def send_to_holder(self, subject: str, device_id: str, data: bytes) -> None:
        self._send_to_holder(Note(subject, device_id, data))

    def hold(self, device_id: str, since: int) -> None:
        self._held[device_id] = since
        self._change(device_id, since)

    def release(self, device_id: str) -> None:
        if self._held.pop(device_id, None) is not None:
            self._change(device_id, None)

    async def settle(self) -> None:
        number = self._taken + len(self._changes)
        if self._breaker.is_open or number <= self._done:
            return
        settled = asyncio.get_running_loop().create_future()
        self._settling.append((number, settled))
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * TIMEOUT_S):
                await settled

    async def find_held(self, device_ids: Collection[str]) -> frozenset[str]:
        if self._breaker.is_open or not device_ids:
            return frozenset()
        try:
            holders = await self._find_holders(device_ids)
        except FAILURES as error:
            self._breaker.open(error)
            return frozenset()
        own = f"{self.node}/"
        return frozenset(each for each, node in holders.items() if not node.startswith(own))

    async def send(self) -> None:
        """Send the waiting messages at the end of the loop turn in which they were published."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._send_all()

    async def watch(self) -> None:
        """Subscribe whenever Redis is available, and notice when the subscription is lost."""
        clock = asyncio.get_running_loop().time
        lost_at = clock()
        while True:
            await self._breaker.closed.wait()
            try:
                await self._subscribe()
                get_logger().info("bus_connected", disconnected_s=round(clock() - lost_at, 3))
                await self._probe_until_lost()
            except FAILURES as error:
                self._breaker.open(error)
            finally:
                was_connected = self._subscribed.is_set()
                self._subscribed.clear()
            if was_connected:
                lost_at = clock()
                get_logger().debug("bus_disconnected")  # `redis_unavailable` is logged

    async def beat(self) -> None:
        """Renew this node's presence entries before they expire, and delete expired ones."""
        for part in cycle(range(PARTS)):
            await asyncio.sleep(self._beat_every_s)
            if not self._is_joined:
                continue
            try:
                await self._write_presence()
                await self._sweep(part)
            except FAILURES as error:
                self._breaker.open(error)

    async def close(self) -> None:
        """Send what still waits, and release all devices."""
        for device_id in list(self._held):
            self.release(device_id)
        with contextlib.suppress(TimeoutError, *FAILURES):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await self._send_all()
                if not self._breaker.is_open:
                    await self._client.run([*self._presence.unmark(), self._members.remove()])
        self._subscribed.clear()
        if self._missing:
            self._missing.cancel()

    def _send_to_holder(self, note: Note) -> None:
        if note.device_id in self._held:
            return
        if self._breaker.is_open:
            self._drop(DropReason.UNAVAILABLE, 1)
        elif self._outbox.add_note(note):
            self._wake.set()
        else:
            self._drop(DropReason.FULL, 1)

    def _change(self, device_id: str, since: int | None) -> None:
        if len(self._changes) >= _CHANGES_LIMIT:
            self._changes.clear()
        self._changes[device_id] = since
        self._wake.set()

    def _drop(self, reason: DropReason, count: int) -> None:
        if count:
            self.counts.dropped[reason] += count
            self._was_missed |= reason is not DropReason.UNREADABLE

    @property
    def _second(self) -> int:
        return self._clock.now() // 1_000

    # What is sent.

    async def _send_all(self) -> None:
        """Send portion by portion, until nothing waits or Redis is unavailable."""
        while self._has_work and not self._breaker.is_open:
            changes = self._take_changes()
            try:
                await self._send_portion(changes)
            except FAILURES as error:
                self._taken -= len(changes)
                self._changes = {**changes, **self._changes}
                self._breaker.open(error)
            else:
                self._done = self._taken
                self._end_settling(self._done)
        if self._breaker.is_open:
            self._drop(DropReason.UNAVAILABLE, self._outbox.clear())
            self._end_settling(self._taken + len(self._changes))

    @property
    def _has_work(self) -> bool:
        waiting = self._outbox or self._changes or self._replaced or self._gone
        return bool(waiting or self._was_missed)

    def _take_changes(self) -> dict[str, int | None]:
        taken = dict(islice(self._changes.items(), _AT_A_TIME))
        if len(taken) == len(self._changes):
            self._changes = {}
        else:
            for device_id in taken:
                del self._changes[device_id]
        self._taken += len(taken)
        return taken

    def _end_settling(self, number: int) -> None:
        """Release the callers that wait for changes up to a number."""
        for place, settled in self._settling:
            if place <= number and not settled.done():
                settled.set_result(None)
        self._settling = [each for each in self._settling if each[0] > number]

    async def _send_portion(self, changes: Mapping[str, int | None]) -> None:
        """Write this node's presence, look up the nodes of devices, and publish the frames."""
        gone, self._gone = self._gone, []
        messages, notes = self._outbox.take(), self._outbox.take_notes()
        if self._was_missed and not self._outbox:
            self._was_missed = False
            messages.append((_MISSED, b""))
        held = [(each, since) for each, since in changes.items() if since is not None]
        released = [each for each, since in changes.items() if since is None]
        second = self._second
        holds = list(self._presence.hold(held, second))
        steps = [*holds, *self._presence.release(released)]
        for holder, device_ids in gone:
            steps += self._presence.release(device_ids, holder)
        finds = list(self._presence.find(dict.fromkeys(note.device_id for note in notes).keys()))
        steps += [step for _, step in finds]
        try:
            answers = await self._client.run(steps) if steps else []
        except FAILURES:
            self._drop(DropReason.UNAVAILABLE, len(messages) + len(notes))
            raise
        self._apply_changes(dict(held), answers[: len(holds)])
        found = answers[len(answers) - len(finds) :]
        self._publish(messages, notes, read_holders([each for each, _ in finds], found, second))

    def _apply_changes(self, held: Mapping[str, int], answers: Iterable[Sequence[bytes]]) -> None:
        """Note which devices this node took over, and which it lost to others."""
        lost = []
        for device_id, former in read_changes(answers):
            if former:
                self._replaced[former][device_id] = held[device_id]
            elif self._held.get(device_id) == held[device_id]:  # it has not reconnected meanwhile
                del self._held[device_id]
                lost.append(device_id)
        self._receivers.replace(lost)
        if self._replaced:
            self._wake.set()

    def _publish(
        self, messages: list[tuple[str, bytes]], notes: Iterable[Note], holders: Mapping[str, str]
    ) -> None:
        own = f"{self.node}/"
        by_holder: dict[str, list[Note]] = defaultdict(list)
        for note in notes:
            holder = holders.get(note.device_id)
            if holder and not holder.startswith(own):
                by_holder[holder].append(note)
        replaced, self._replaced = self._replaced, defaultdict(dict)
        commands: dict[RedisLink, list[Command]] = defaultdict(list)
        plans: dict[RedisLink, list[tuple[str, Sequence[str]]]] = defaultdict(list)
        for holder in {**by_holder, **replaced}:
            channel = self._node_channel.format(holder.partition("/")[0])
            link = self._client.find_link(slot_of(channel))
            for frame, device_ids in pack_for_node(
                self.node, by_holder.get(holder, ()), replaced.get(holder, {})
            ):
                commands[link].append(("SPUBLISH", channel, frame))
                plans[link].append((holder, device_ids))
        for frame in pack_for_all(self.node, messages):
            link = self._client.find_link(self._spoken_slot)
            commands[link].append(("SPUBLISH", self._spoken_channel, frame))
            plans[link].append(("", ()))
        self.counts.messages_sent += len(messages) + sum(map(len, by_holder.values()))
        for link, some in commands.items():
            self.counts.frames_sent += len(some)
            self.counts.bytes_sent += sum(map(_frame_bytes, some))
            link.send(some).add_done_callback(partial(self._check_published, plans[link]))

    def _check_published(
        self, plans: Sequence[tuple[str, Sequence[str]]], sent: asyncio.Future[list[Any]]
    ) -> None:
        """Remove the presence of nodes that received no frame; connected ones write it again."""
        if sent.cancelled() or sent.exception():
            return  # the connection is lost, and the breaker is open
        for (holder, device_ids), answer in zip(plans, sent.result(), strict=True):
            if isinstance(answer, hiredis.ReplyError):
                self._breaker.open(RedisRefused(str(answer)))
            elif holder and not answer and device_ids:
                self._gone.append((holder, device_ids))
                self._wake.set()

    # What is received.

    def _receive(self, channel: bytes, data: bytes) -> None:
        if channel in self._all_channel_bytes:
            self._receive_for_all(data)
        elif channel == self._own_channel_bytes:
            self._receive_for_node(data)
        else:
            self._probes_received[channel] = data

    def _receive_for_all(self, data: bytes) -> None:
        if data.startswith(self._own_head):
            return
        self._count_received(data)
        try:
            frame = decode_for_all(data)
        except msgspec.DecodeError:
            self._drop(DropReason.UNREADABLE, 1)
            return
        for subject, messages in frame.messages.items():
            self.counts.messages_received += len(messages)
            if subject == _MISSED:
                self._miss_soon()
            else:
                self._receivers.receive(subject, messages)

    def _miss_soon(self) -> None:
        """Report a gap, once for all nodes that reconnect together."""
        if self._missing is None:
            loop = asyncio.get_running_loop()
            self._missing = loop.call_later(_MISSED_AFTER_S, self._miss)

    def _miss(self) -> None:
        self._missing = None
        self._receivers.miss()

    def _receive_for_node(self, data: bytes) -> None:
        self._count_received(data)
        try:
            frame = decode_for_node(data)
        except msgspec.DecodeError:
            self._drop(DropReason.UNREADABLE, 1)
            return
        if frame.replaced:
            self._hand_over(frame.sender, frame.replaced)
        held = self._held
        for subject, (device_ids, messages) in frame.messages.items():
            self.counts.messages_received += len(messages)
            if any(each not in held for each in device_ids):
                messages = self._pass_on(subject, device_ids, messages, frame.hops)  # noqa: PLW2901
            self._receivers.receive(subject, messages)

    def _pass_on(
        self, subject: str, device_ids: Iterable[str], messages: Iterable[bytes], hops: int
    ) -> list[bytes]:
        """Return the messages for devices of this node; forward the others to their holders."""
        own = []
        for device_id, data in zip(device_ids, messages, strict=True):
            if device_id in self._held:
                own.append(data)
            elif hops < _HOPS_LIMIT:
                self._send_to_holder(Note(subject, device_id, data, hops + 1))
        return own

    def _hand_over(self, sender: str, replaced: Mapping[str, int]) -> None:
        """Release devices that reconnected to another node."""
        lost = []
        for device_id, since in replaced.items():
            own = self._held.get(device_id)
            if own is not None and (own, f"{self.node}/") < (since, f"{sender}/"):
                del self._held[device_id]
                lost.append(device_id)
        self._receivers.replace(lost)

    def _count_received(self, data: bytes) -> None:
        self.counts.frames_received += 1
        self.counts.bytes_received += len(data)

    # The subscription, and what others know of this node.

    async def _subscribe(self) -> None:
        """Subscribe first, then write presence: a node that reads it can send at once."""
        channels = [self._own_channel, *self._all_channels, *self._choose_probes().values()]
        await self._client.run([(slot_of(each), ("SSUBSCRIBE", each)) for each in channels])
        self._presence.incarnation += 1
        await self._write_presence()
        if self._breaker.is_open:
            raise ConnectionError("lost again")
        self._subscribed.set()
        self.counts.rebuilds += 1
        # Messages that were on their way when the connection was lost.
        self._was_missed |= self.counts.rebuilds > 1
        self._wake.set()
        self._receivers.miss()

    def _choose_probes(self) -> dict[RedisLink, str]:
        """Return a channel for each server."""
        return {
            self._client.find_link(slot): channel for slot, channel in self._probe_channels.items()
        }

    async def _probe_until_lost(self) -> None:
        """Return when the breaker opens; raise if a server does not answer, or a probe is lost."""
        while True:
            await self._probe()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._probe_every_s):
                    await self._breaker.opened.wait()
                    return
            if not self._has_received_probes():
                await asyncio.sleep(_SECOND_LOOK_S)
                if not self._has_received_probes():
                    raise SubscriptionLost

    def _has_received_probes(self) -> bool:
        number = str(self._probe_number).encode()
        return all(
            self._probes_received.get(each.encode()) == number
            for each in self._choose_probes().values()
        )

    async def _probe(self) -> None:
        """Publish to this node by each server; notice if presence was deleted."""
        self._probe_number += 1
        probes = [
            (slot_of(each), ("SPUBLISH", each, self._probe_number))
            for each in self._choose_probes().values()
        ]
        marks = self._presence.find_mark()
        counts = self._members.count(self._probe_number)
        answers = await self._client.run([*probes, *marks, *counts])
        if not all(answers[: len(probes)]):
            raise SubscriptionLost
        await self._note_members(answers[-1])
        if not all(answers[len(probes) : len(probes) + len(marks)]):
            get_logger().warning("presence_lost", effect="it is written again")
            await self._write_presence()
            self._receivers.miss()

    async def _note_members(self, numbers: Mapping[bytes, bytes]) -> None:
        """Notice which nodes are silent, and when none is any more."""
        before = self._members.silent
        now = asyncio.get_running_loop().time()
        gone = self._members.note(numbers, now, self.list_living())
        if gone:
            await self._client.run([self._members.remove(*gone)])
        for node_id, node in self._members.silent.items():
            if node_id not in before:
                effect = "its changes are not received"
                get_logger().warning("node_unreachable", node=node, node_id=node_id, effect=effect)
        if before and not self._members.silent:
            get_logger().warning("nodes_reachable", nodes=sorted(before.values()))
            self._receivers.miss()

    async def _write_presence(self) -> None:
        """Write this node's presence.

        If it had expired (the machine slept), others may have stored messages for its devices.
        """
        expired = self._second - self._presence.written_at > EXPIRES_S
        self._presence.written_at = self._second
        await self._client.run(self._presence.mark(self._second))
        for some in cut(list(self._held), _AT_A_TIME):
            held = {each: self._held[each] for each in some if each in self._held}
            answers = await self._client.run(list(self._presence.hold(held.items(), self._second)))
            self._apply_changes(held, answers)
        if expired:
            self._receivers.miss()

    async def _sweep(self, part: int) -> None:
        cursor = 0
        while True:
            (answer,) = await self._client.run([self._presence.sweep(part, self._second, cursor)])
            cursor = int(answer)
            if not cursor:
                return

    async def _find_holders(self, device_ids: Collection[str]) -> Mapping[str, str]:
        finds = list(self._presence.find(device_ids))
        answers = await self._client.run([step for _, step in finds])
        return read_holders([each for each, _ in finds], answers, self._second)


def _frame_bytes(command: Command) -> int:
    frame = command[2]
    return len(frame) if isinstance(frame, bytes) else 0
