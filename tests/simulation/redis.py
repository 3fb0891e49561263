"""One Redis, and the network between it and the nodes.

The protocol, the commands and the scripts that Clarion uses are done here as Redis does them; each
node speaks to it by its real client. What goes wrong: an answer is late, a node is cut off from it,
its data are flushed, it ends and starts anew.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from typing import Any

import hiredis

from clarion.nodes.redis.scripts import (
    EXPIRES_S,
    HOLD,
    NODE_START,
    RELEASE,
    SCRIPTS,
    SINCE_DIGITS,
    SWEEP,
)
from tests.simulation.faults import Faults
from tests.simulation.loop import NODE, SeededLoop

_HELLO = {"server": "redis", "version": "7.2.0", "proto": 3, "mode": "standalone", "role": "master"}
Reply = Any


class Refused(Exception):
    """An answer that begins with a minus sign."""


class SimulatedRedis:
    """The server: hashes that expire, scripts, and sharded channels."""

    def __init__(self, loop: SeededLoop, faults: Faults) -> None:
        self._loop, self.faults = loop, faults
        self.hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._ends: dict[bytes, float] = {}
        self._loaded: set[str] = set()
        self.connections: dict[Connection, None] = {}
        self.is_down = False
        # Nodes that cannot reach it.
        self.cut: set[int] = set()

    async def connect(self, protocol: Any) -> tuple["Connection", Any]:
        """Connect a node: what `create_connection` does."""
        await asyncio.sleep(self.faults.delay_s("redis"))
        node = NODE.get()
        if node in self.cut:
            await asyncio.sleep(60)  # no answer comes
        if self.is_down or node in self.cut:
            raise ConnectionRefusedError
        connection = Connection(self, self._loop, node, protocol, copy_context())
        self.connections[connection] = None
        protocol.connection_made(connection)
        return connection, protocol

    def flush(self) -> None:
        """Lose all data."""
        self.hashes.clear()

    def stop(self) -> None:
        """End, with all data and all connections."""
        self.is_down = True
        self.flush()
        self._loaded.clear()
        for connection in list(self.connections):
            connection.reset()

    def begin(self) -> None:
        """Begin anew, after an end."""
        self.is_down = False

    def drop(self, node: int) -> None:
        """Take note that a node has crashed."""
        for connection in list(self.connections):
            if connection.node == node:
                del self.connections[connection]

    def heal(self, node: int) -> None:
        """Let a node reach it again: what was sent meanwhile arrives."""
        self.cut.discard(node)
        for connection in list(self.connections):
            if connection.node == node:
                connection.flow()

    def publish(self, channel: bytes, data: bytes) -> int:
        listeners = [each for each in self.connections if channel in each.channels]
        for each in listeners:
            each.say(_push(b"smessage", channel, data))
        return len(listeners)

    def run(self, connection: "Connection", command: list[bytes]) -> Reply:
        """Run a command; return what it answers, as bytes of the protocol."""
        name, *rest = command
        method = getattr(self, f"_do_{name.decode().lower()}")
        try:
            return _encode(method(connection, *rest))
        except Refused as error:
            return b"-" + str(error).encode() + b"\r\n"

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        if self._ends.get(key, float("inf")) <= self._loop.time():
            self.hashes.pop(key, None)
        return self.hashes.get(key, {})

    def _set(self, key: bytes, field: bytes, value: bytes) -> None:
        if not self._hash(key):
            self.hashes[key] = {}
            self._ends.pop(key, None)
        self.hashes[key][field] = value

    def _do_hello(self, _connection: "Connection", *_options: bytes) -> Reply:
        return _HELLO

    def _do_ping(self, _connection: "Connection") -> Reply:
        return "PONG"

    def _do_script(self, _connection: "Connection", _verb: bytes, text: bytes) -> Reply:
        digest = next(each.digest for each in SCRIPTS if each.text.encode() == text)
        self._loaded.add(digest)
        return digest

    def _do_ssubscribe(self, connection: "Connection", channel: bytes) -> Reply:
        connection.channels.add(channel)
        return (b"ssubscribe", channel, len(connection.channels))

    def _do_spublish(self, _connection: "Connection", channel: bytes, data: bytes) -> Reply:
        return self.publish(channel, data)

    def _do_hset(self, _connection: "Connection", key: bytes, field: bytes, value: bytes) -> Reply:
        is_new = field not in self._hash(key)
        self._set(key, field, value)
        return int(is_new)

    def _do_hdel(self, _connection: "Connection", key: bytes, *fields: bytes) -> Reply:
        found = self._hash(key)
        return sum(found.pop(each, None) is not None for each in fields)

    def _do_hmget(self, _connection: "Connection", key: bytes, *fields: bytes) -> Reply:
        return [self._hash(key).get(each) for each in fields]

    def _do_hexists(self, _connection: "Connection", key: bytes, field: bytes) -> Reply:
        return int(field in self._hash(key))

    def _do_hgetall(self, _connection: "Connection", key: bytes) -> Reply:
        return dict(self._hash(key))

    def _do_expire(self, _connection: "Connection", key: bytes, seconds: bytes) -> Reply:
        if not self._hash(key):
            return 0
        self._ends[key] = self._loop.time() + int(seconds)
        return 1

    def _do_evalsha(
        self, connection: "Connection", digest: bytes, _count: bytes, key: bytes, *values: bytes
    ) -> Reply:
        scripts: dict[str, Callable[..., Reply]] = {
            HOLD.digest: self._hold,
            RELEASE.digest: self._release,
            SWEEP.digest: self._sweep,
        }
        if digest.decode() not in self._loaded:
            raise Refused("NOSCRIPT No matching script. Please use EVAL.")
        answer = scripts[digest.decode()](key, *values)
        if digest.decode() == HOLD.digest:
            self._do_expire(connection, key, b"%d" % (4 * EXPIRES_S))
        return answer

    def _hold(
        self, key: bytes, second: bytes, node: bytes, incarnation: bytes, *pairs: bytes
    ) -> Reply:
        changed: list[bytes] = []
        for device, since in zip(pairs[::2], pairs[1::2], strict=True):
            former, wins = self._hash(key).get(device), True
            if former and not former[NODE_START:].startswith(node):
                holder, beat = former[NODE_START:], int(former[SINCE_DIGITS:NODE_START])
                is_older = former[:SINCE_DIGITS] + holder < since + node
                wins = is_older or beat + EXPIRES_S < int(second)
                changed += (device, holder if wins else b"")
            if wins:
                self._set(key, device, since + second + node + incarnation)
        return changed

    def _release(self, key: bytes, holder: bytes, *devices: bytes) -> Reply:
        found = self._hash(key)
        for each in devices:
            if found.get(each, b"")[NODE_START:].startswith(holder):
                del found[each]
        return 0

    def _sweep(self, key: bytes, second: bytes, _cursor: bytes, _count: bytes) -> Reply:
        found = self._hash(key)
        for device, value in list(found.items()):
            if int(value[SINCE_DIGITS:NODE_START]) + EXPIRES_S < int(second):
                del found[device]
        return b"0"


class Connection(asyncio.Transport):
    """One connection of a node: both directions in order, each as late as the network is."""

    def __init__(
        self,
        redis: SimulatedRedis,
        loop: SeededLoop,
        node: int,
        protocol: Any,
        context: Context,
    ) -> None:
        super().__init__()
        self.node = node
        self.channels: set[bytes] = set()
        self._redis, self._loop, self._protocol = redis, loop, protocol
        self._of_node, self._of_server = context, Context()
        self._reader = hiredis.Reader()
        self._to_server: deque[bytes | None] = deque()
        self._to_node: deque[bytes | None] = deque()
        self._is_aborted = False

    # The node's end.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_aborted:
            self._to_server.append(bytes(data))
            self._pass_on(self._arrive, self._of_server)

    def abort(self) -> None:
        if not self._is_aborted:
            self._is_aborted = True
            self._to_server.append(None)
            self._pass_on(self._arrive, self._of_server)

    close = abort

    # The server's end.

    def say(self, data: bytes | None) -> None:
        """Send to the node; None: that is the end."""
        self._to_node.append(data)
        self._pass_on(self._deliver, self._of_node)

    def reset(self) -> None:
        """End the connection: the server has."""
        self._redis.connections.pop(self, None)
        self._to_server.clear()
        self.say(None)

    def flow(self) -> None:
        """Let what could not pass go on."""
        for _ in self._to_server:
            self._pass_on(self._arrive, self._of_server)
        for _ in self._to_node:
            self._pass_on(self._deliver, self._of_node)

    def _pass_on(self, arrive: Callable[[], None], context: Context) -> None:
        delay_s = self._redis.faults.delay_s("redis")
        self._loop.call_later(delay_s, arrive, context=context)

    @property
    def _is_cut(self) -> bool:
        return self.node in self._redis.cut

    def _arrive(self) -> None:
        if self._is_cut or not self._to_server:
            return
        data = self._to_server.popleft()
        if data is None:
            self._redis.connections.pop(self, None)
        elif self in self._redis.connections:
            self._reader.feed(data)
            answers = b"".join(self._redis.run(self, each) for each in self._commands())
            self.say(answers)

    def _commands(self) -> Iterator[list[bytes]]:
        while command := self._reader.gets():
            yield command

    def _deliver(self) -> None:
        if self._is_cut or not self._to_node or self._is_aborted:
            return
        data = self._to_node.popleft()
        if data is None:
            self._is_aborted = True
            self._protocol.connection_lost(None)
        else:
            self._protocol.data_received(data)


def _encode(reply: Reply) -> bytes:
    if isinstance(reply, tuple):
        return _push(*reply)
    if isinstance(reply, dict):
        parts = b"".join(_encode(key) + _encode(value) for key, value in reply.items())
        return b"%%%d\r\n%b" % (len(reply), parts)
    if isinstance(reply, list):
        return b"*%d\r\n%b" % (len(reply), b"".join(map(_encode, reply)))
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if reply is None:
        return b"_\r\n"
    data: bytes = reply.encode() if isinstance(reply, str) else reply
    return b"$%d\r\n%b\r\n" % (len(data), data)


def _push(*parts: bytes | int) -> bytes:
    return b">%d\r\n%b" % (len(parts), b"".join(map(_encode, parts)))
