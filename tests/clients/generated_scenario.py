"""What a program does with a client that was generated from the OpenAPI document.

It runs apart, with `clarion_api`, the generated package, on its path.
"""

import importlib
import json
import pkgutil
import sys
import time
from typing import Any

DEADLINE_S = 60


def import_everything() -> Any:
    """Import every module of the package, and return the package."""
    package = importlib.import_module("clarion_api")
    for found in pkgutil.walk_packages(package.__path__, "clarion_api."):
        importlib.import_module(found.name)
    return package


def main(url: str, key: str, user: str) -> dict[str, Any]:
    package = import_everything()
    api, models = package.api, package.models
    client = package.AuthenticatedClient(base_url=url, token=key)
    draft = models.EventDraft(
        type_="POST_LIKE",
        recipient=models.Recipient(user_id=user),
        actor=models.Actor(id="ben", name="Ben"),
        target=models.Target(id="42", type_="post"),
    )
    sent = api.events.send_event.sync(client=client, body=draft, idempotency_key=f"{user}-1")
    item = find_item(api, client, user)
    read = api.inbox.mark_notification_read.sync(user, item.id, client=client)
    draft.type_ = "NO_SUCH_TYPE"
    refused = api.events.send_event.sync_detailed(client=client, body=draft)
    assert isinstance(refused.parsed, models.Problem)
    return {
        "accepted": sent.status,
        "title": "Ben" in item.body,
        "unread_before": item.read_at is None,
        "read_at": "string" if read.read_at.tzinfo else None,
        "unread_count": read.unread_count,
        "status": refused.status_code,
        "code": refused.parsed.code,
        "fields": [each.field for each in refused.parsed.errors],
    }


def find_item(api: Any, client: Any, user: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        page = api.inbox.list_notifications.sync(user, client=client)
        if page.items:
            return page.items[0]
    raise TimeoutError("The notification did not arrive.")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
