"""Client of Clarion: send events with an API key, and follow one user's inbox with their token.

    from clarion.client import Clarion

    with Clarion("http://127.0.0.1:8080", api_key="ck_…") as clarion:
        clarion.send("POST_LIKE", to="ana", actor={"id": "ben", "name": "Ben"})

`AsyncClarion` and `AsyncInbox` are the same for asyncio.
"""

from clarion.client.apps import AsyncClarion
from clarion.client.blocking import Clarion, Inbox
from clarion.client.errors import ApiError, FieldFault, NotReached
from clarion.client.http import Answer
from clarion.client.inboxes import AsyncInbox
from clarion.client.model import (
    AcceptedEvent,
    BatchResult,
    Notification,
    NotificationPage,
    Published,
    UnreadCount,
    Update,
)
from clarion.client.tokens import sign_user_token

__all__ = [
    "AcceptedEvent",
    "Answer",
    "ApiError",
    "AsyncClarion",
    "AsyncInbox",
    "BatchResult",
    "Clarion",
    "FieldFault",
    "Inbox",
    "NotReached",
    "Notification",
    "NotificationPage",
    "Published",
    "UnreadCount",
    "Update",
    "sign_user_token",
]
