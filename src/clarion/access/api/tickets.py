"""Tickets over HTTP."""

from __future__ import annotations

from litestar import post

from clarion.access.model import require_user
from clarion.access.sql import Tickets
from clarion.access.tickets import issue_ticket
from clarion.clock import Clock
from clarion.http.callers import ApiRequest, caller_of
from clarion.http.dependencies import Injected
from clarion.http.views import Timestamp, View


class TicketView(View):
    """A ticket for one stream or socket: send it as `?ticket=`."""

    ticket: str
    """The ticket, to be sent as `?ticket=`; it can be used once."""
    expires_at: Timestamp
    """Until when it can be used."""


@post("/v1/me/tickets", summary="Create a ticket", status_code=201, tags=("Inbox",))
async def create_ticket(
    request: ApiRequest, tickets: Injected[Tickets], clock: Injected[Clock]
) -> TicketView:
    """Create a ticket that opens one stream or socket of the user within 30 seconds.

    For clients that cannot send a header, such as `EventSource` in a browser.
    """
    ticket, text = issue_ticket(require_user(caller_of(request)), clock.now())
    await tickets.add(ticket)
    return TicketView.of(ticket, ticket=text)


ROUTES = (create_ticket,)
