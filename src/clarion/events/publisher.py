"""Publishes to a topic: a message for its devices and an event for its followers, in one commit."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from clarion.catalog.model import PUBLISHED
from clarion.events.drafts import EventDraft, Recipient
from clarion.events.emoji import decorate
from clarion.events.intake import Intake
from clarion.events.model import Event
from clarion.events.publications import Publication
from clarion.history.model import PublishedTo
from clarion.idempotency.model import IdempotencyClaim, StoredResponse
from clarion.push.model import Message


@dataclass(frozen=True, slots=True)
class Publisher:
    """Makes the event and the message of a publication, and stores them."""

    intake: Intake

    async def prepare(self, app_id: str, publication: Publication) -> tuple[Event, Message]:
        """Return the event and the message; `InvalidFields` if the app's type refuses it."""
        event, ports = await self.intake.prepare(app_id, _draft(publication)), self.intake.ports
        entry = await ports.catalog.find(app_id, PUBLISHED)
        category = entry.type.category if entry else ""
        message = ports.push_devices.make_topic_message(event, category)
        published = PublishedTo(publication.topic, message.id)
        return replace(event, content=replace(event.content, published_to=published)), message

    async def publish(
        self, event: Event, message: Message, once: IdempotencyClaim | None
    ) -> StoredResponse | bool:
        """Store both; False if the topic was deleted, or the response to an earlier request."""
        return await self.intake.publish(event, message, once)


def _draft(publication: Publication) -> EventDraft:
    topic, tags = publication.topic, publication.tags
    data: dict[str, object] = {
        "topic": topic,
        "title": decorate(publication.title or topic, tags),
        "message": publication.message,
    }
    if tags:
        data["tags"] = list(tags)
    priority = publication.priority
    return EventDraft(
        type=PUBLISHED,
        recipient=Recipient(topic=topic),
        data=data,
        priority=None if priority is None else priority.value,
        deeplink=publication.click,
    )
