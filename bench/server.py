"""The real server with two routes more: an empty handler, and a durable write of two statements.

`python -m bench.server` takes the settings of `clarion serve`.
"""

import os
import sys

import msgspec
import uvloop

from clarion.app import Server
from clarion.house import House, open_house
from clarion.http.asgi import Request, Response
from clarion.http.fast_routes import FastRoute
from clarion.settings import Settings, load
from clarion.store.statement import Unit, statement
from clarion.telemetry import logs

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


def annex(house: House) -> tuple[FastRoute, ...]:
    """Return the routes of the bench."""
    decode = msgspec.json.Decoder(Event).decode
    empty = Response(202)

    async def answer_empty(_request: Request) -> Response:
        return empty

    async def write(request: Request) -> Response:
        body = await request.body()
        decode(body)
        event_id = house.clock.new_id()
        steps = (
            INSERT_EVENT.step(id=event_id, body=body.decode()),
            INSERT_WORK.step(id=event_id, due_at=house.clock.now()),
        )
        await house.engine.write(Unit(event_id, steps))
        return Response(202, b'{"id":"' + event_id.encode() + b'"}')

    return (
        FastRoute("POST", "/bench/empty", answer_empty),
        FastRoute("POST", "/bench/write", write),
    )


async def serve(settings: Settings) -> int:
    """Make the tables of the bench, then serve."""
    async with open_house(settings) as house:
        await house.engine.write(Unit("", (CREATE_EVENTS.step(), CREATE_QUEUE.step())))
    return await Server(settings, annex).run()


def main(arguments: list[str]) -> int:
    """Run the server; arguments are `--name=value`."""
    flags = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    settings = load(flags, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    return uvloop.run(serve(settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
