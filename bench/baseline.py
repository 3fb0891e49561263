"""What the rows of the table are compared with: an empty handler, and a durable write.

Both are served by Clarion's own HTTP front, listener and engine, in a process without the rest; a
bare handler is served by the listener alone.
`python -m bench.baseline` takes the settings of `clarion serve`.
"""

import asyncio
import gc
import os
import signal
import sys

import msgspec
import uvloop

from clarion.access.administrators.authentication import AdminAuthenticator
from clarion.access.administrators.policy import SignInPolicy
from clarion.access.callers import Callers
from clarion.access.known_apps import KnownApps
from clarion.access.origins import AllowedOrigins
from clarion.access.port import Authenticators
from clarion.access.user_tokens import UserTokens
from clarion.app.stores import Stores, open_stores
from clarion.errors import NotFound
from clarion.http.asgi import FastRoute, Receive, Request, Response, Scope, Send
from clarion.http.front import Front, Rest
from clarion.http.listeners import HttpListener
from clarion.nodes.memory import MemoryLimits
from clarion.people.active_users import ActiveUsers
from clarion.settings import Settings, load
from clarion.store.statement import Unit, statement
from clarion.telemetry import logs
from clarion.telemetry.metrics import Metrics

CREATE_EVENTS = statement(
    "create_bench_events",
    "CREATE TABLE IF NOT EXISTS bench_events (id TEXT PRIMARY KEY, body TEXT NOT NULL)",
)
CREATE_QUEUE = statement(
    "create_bench_queue",
    "CREATE TABLE IF NOT EXISTS bench_queue (id TEXT PRIMARY KEY, due_at BIGINT NOT NULL)",
)
INSERT_EVENT = statement(
    "insert_bench_event", "INSERT INTO bench_events (id, body) VALUES (:id, :body)"
)
INSERT_WORK = statement(
    "insert_bench_work", "INSERT INTO bench_queue (id, due_at) VALUES (:id, :due_at)"
)


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """A small event, as an application would send it."""

    type: str
    user_id: str
    text: str


def routes(stores: Stores) -> tuple[FastRoute, ...]:
    decode = msgspec.json.Decoder(Event).decode
    empty = Response(202)

    async def answer_empty(_request: Request) -> Response:
        return empty

    async def write(request: Request) -> Response:
        body = await request.body()
        decode(body)
        event_id = stores.clock.new_id()
        steps = (
            INSERT_EVENT.step(id=event_id, body=body.decode()),
            INSERT_WORK.step(id=event_id, due_at=stores.clock.now()),
        )
        await stores.engine.write(Unit(event_id, steps))
        return Response(202, b'{"id":"' + event_id.encode() + b'"}')

    return (
        FastRoute("POST", "/bench/empty", answer_empty),
        FastRoute("POST", "/bench/write", write),
    )


class Bare:
    """Answers one path by itself: an ASGI handler without anything of ours in front of it."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/bench/bare":
            await self._front(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class NoFramework:
    """Has no routes beside those of the front."""

    routes = ()

    async def __call__(self, _scope: object, _receive: object, _send: object, /) -> None:
        raise NotFound


def build_front(settings: Settings, stores: Stores) -> Front:
    known_apps = KnownApps(stores.apps, stores.user_keys, stores.vault)
    return Front(
        routes=routes(stores),
        prefixes={},
        build_rest=lambda: Rest((), {}, NoFramework()),
        authenticators=Authenticators(
            Callers(
                stores.keys,
                UserTokens(known_apps),
                stores.clock,
                tickets=stores.tickets,
                is_active=ActiveUsers(stores.users, stores.clock).is_active,
            ),
            AdminAuthenticator(
                stores.admins, apps=stores.apps, policy=SignInPolicy(), clock=stores.clock
            ),
        ),
        origins=AllowedOrigins(known_apps, stores.clock),
        limits=MemoryLimits(stores.clock),
        clock=stores.clock,
        metrics=Metrics(),
        settings=settings,
    )


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with open_stores(settings) as stores:
        await stores.engine.write(Unit("", (CREATE_EVENTS.step(), CREATE_QUEUE.step())))
        app = Bare(build_front(settings, stores))
        listener = HttpListener(app, settings.listen, max_header_bytes=settings.max_header_bytes)
        await listener.start(on_failed=sys.exit)
        # As the server does, or the two could not be compared.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
        await stopping.wait()
        await listener.stop(settings.grace_s)


def main(arguments: list[str]) -> None:
    """Run the server; arguments are `--name=value`."""
    flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    settings = load(flags, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    uvloop.run(serve(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
