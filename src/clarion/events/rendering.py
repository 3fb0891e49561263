"""Renders the text of a notification for a channel, in the user's language."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from clarion.catalog.model import Channel, RenderedText, build_context
from clarion.catalog.port import CatalogEntry
from clarion.history.model import Actor, Content, Target
from clarion.people.model import User
from clarion.telemetry.traces import current, entered

# Programs read these: they get the text of the inbox if the type has none for them.
LIKE_INBOX = frozenset({Channel.STUB, Channel.WEBHOOK})
_SAMPLE_USER: dict[str, str | None] = {"id": "anybody", "name": "Anybody", "language": "en"}


async def render(
    entry: CatalogEntry, channel: Channel, user: User, content: Content, count: int
) -> RenderedText:
    """Render the template of a channel; `InvalidFields` if that fails."""
    recipient = {"id": user.id, "name": user.name, "language": user.language}
    context = _context(content, recipient, count)
    text = entry.render(template_channel(entry, channel), user.language, context)
    span = current.get()
    if span is None:
        return await text
    with entered(span.start("render", attributes={"clarion.channel": channel.value})):
        return await text


def template_channel(entry: CatalogEntry, channel: Channel) -> Channel:
    """Return the channel whose template is used: the channel itself or the inbox."""
    is_like_inbox = channel in LIKE_INBOX and channel not in entry.channels
    return Channel.IN_APP if is_like_inbox else channel


async def check_context(
    entry: CatalogEntry, channels: Collection[Channel], content: Content
) -> None:
    """Raise `InvalidFields` if a template shows an actor or a target that the event lacks.

    Its other variables are declared and have been checked; these are not declared.
    """
    missing = [name for name in ("actor", "target") if _lacks(getattr(content, name))]
    if missing:
        await entry.check_context(channels, _context(content, _SAMPLE_USER, 1), missing)


def _lacks(named: Actor | Target | None) -> bool:
    return named is None or None in msgspec.structs.astuple(named)


def _context(content: Content, user: dict[str, str | None], count: int) -> Mapping[str, object]:
    actor, target = content.actor, content.target
    return build_context(
        content.data,
        actor=_known(msgspec.structs.asdict(actor)) if actor else None,
        target=_known(msgspec.structs.asdict(target)) if target else None,
        user=_known(user),
        count=count,
    )


def _known(values: dict[str, str | None]) -> dict[str, object]:
    """Leave out unknown values: to show one is an error, not an empty text."""
    return {name: value for name, value in values.items() if value is not None}
