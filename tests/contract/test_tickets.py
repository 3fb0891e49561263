"""The contract of `Tickets`."""

import asyncio

from clarion.access.sql import Tickets
from clarion.access.tables import TICKETS
from clarion.store.engine import Engine
from clarion.store.lifecycle.retention import prune
from tests.factories import NOW, make_ticket


async def test_a_ticket_is_redeemed_once(tickets: Tickets) -> None:
    ticket = make_ticket()
    await tickets.add(ticket)
    assert await tickets.redeem(ticket.hash, NOW) == ticket
    assert await tickets.redeem(ticket.hash, NOW) is None


async def test_an_unknown_ticket_is_none(tickets: Tickets) -> None:
    await tickets.add(make_ticket())
    assert await tickets.redeem(b"unknown", NOW) is None


async def test_a_ticket_is_valid_until_it_expires(tickets: Tickets) -> None:
    ticket = make_ticket(token_expires_at=None)
    await tickets.add(ticket)
    assert await tickets.redeem(ticket.hash, ticket.expires_at) is None
    assert await tickets.redeem(ticket.hash, ticket.expires_at - 1) == ticket


async def test_of_many_calls_on_two_nodes_one_gets_the_ticket(
    tickets: Tickets, other_node: Engine
) -> None:
    both = (tickets, Tickets(other_node))
    for _ in range(20):
        ticket = make_ticket()
        await tickets.add(ticket)
        calls = (each.redeem(ticket.hash, NOW) for each in both * 5)
        redeemed = await asyncio.gather(*calls)
        assert [each for each in redeemed if each] == [ticket]


async def test_expired_tickets_are_pruned_in_chunks(engine: Engine, tickets: Tickets) -> None:
    old = [make_ticket(expires_at=NOW - n) for n in range(5)]
    fresh = make_ticket(expires_at=NOW + 1)
    for each in (*old, fresh):
        await tickets.add(each)
    assert [await prune(engine, TICKETS, NOW, 3) for _ in range(3)] == [3, 2, 0]
    assert await tickets.redeem(fresh.hash, NOW) == fresh
