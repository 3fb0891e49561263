"""What a notification says on a channel, in the person's language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clarion.catalog.model import Channel, build_context

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from clarion.catalog.model import RenderedText
    from clarion.catalog.port import CatalogEntry
    from clarion.events.model import Actor, Content, Target
    from clarion.people.model import User

_ANYBODY: dict[str, str | None] = {"id": "anybody", "name": "Anybody", "language": "en"}


def word(
    kind: CatalogEntry, channel: Channel, user: User, content: Content, count: int
) -> RenderedText:
    """Render the type's template; `InvalidFields` if it cannot be."""
    values = _values(content, {"id": user.id, "name": user.name, "language": user.language}, count)
    return kind.render(voice_of(channel), user.language, values)


def voice_of(channel: Channel) -> Channel:
    """Return the channel whose words are said: the stub says what the inbox says."""
    return Channel.IN_APP if channel is Channel.STUB else channel


def try_words(kind: CatalogEntry, channels: Collection[Channel], content: Content) -> None:
    """Raise `InvalidFields` if a template shows an actor or a target that the event has not.

    Its other variables are declared and have been checked; these are not declared.
    """
    missing = [name for name in ("actor", "target") if _lacks(getattr(content, name))]
    if not missing:
        return
    kind.check_context(channels, _values(content, _ANYBODY, 1), missing)


def _lacks(named: Actor | Target | None) -> bool:
    return named is None or None in (getattr(named, name) for name in named.__slots__)


def _values(content: Content, user: dict[str, str | None], count: int) -> Mapping[str, object]:
    actor, target = content.actor, content.target
    return build_context(
        content.data,
        actor=_known({"id": actor.id, "name": actor.name}) if actor else None,
        target=_known({"id": target.id, "type": target.type}) if target else None,
        user=_known(user),
        count=count,
    )


def _known(values: dict[str, str | None]) -> dict[str, object]:
    """Leave out what is not known: shown, it is an error and not a blank."""
    return {name: value for name, value in values.items() if value is not None}
