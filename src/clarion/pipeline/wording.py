"""What a notification says on a channel, in the person's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.errors import NotFound
from clarion.model import Channel
from clarion.render.words import gather_values, render

if TYPE_CHECKING:
    from clarion.catalog.kinds import Kind
    from clarion.model import Content, User
    from clarion.render.words import Words


def word(kind: Kind, channel: Channel, user: User, content: Content, count: int) -> Words:
    """Render the type's template; `InvalidFields` if it cannot be."""
    # The stub says what the inbox says.
    spoken = Channel.IN_APP if channel is Channel.STUB else channel
    template = kind.pick(spoken, user.language)
    if template is None:
        msg = f"{kind.type.type} has no words for {channel}."
        raise NotFound(msg)
    actor, target = content.actor, content.target
    values = gather_values(
        content.data,
        actor={"id": actor.id, "name": actor.name} if actor else None,
        target={"id": target.id, "type": target.type} if target else None,
        user={"id": user.id, "name": user.name, "language": user.language},
        count=count,
    )
    return render(template, values, is_html=channel is Channel.EMAIL)
