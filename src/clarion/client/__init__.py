"""Client of Clarion: send events with an API key, and follow one user's inbox with their token.

    from clarion_client import Clarion

    with Clarion("http://127.0.0.1:8080", api_key="ck_…") as clarion:
        clarion.send("POST_LIKE", to="ana", actor={"id": "ben", "name": "Ben"})

`AsyncClarion` and `AsyncInbox` are the same for asyncio. In the server's own package, this is
`clarion.client`: `clients/python` makes a package of its own from the same files.
"""

from .apps import AsyncClarion
from .blocking import Clarion, Inbox
from .errors import ApiError, FieldFault, NotReached
from .http import Answer
from .inboxes import AsyncInbox
from .model import (
    AcceptedEvent,
    BatchResult,
    Notification,
    NotificationPage,
    Published,
    UnreadCount,
    Update,
)
from .tokens import sign_user_token

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
