"""Runs the Python client by commands: one JSON object a line in, one a line out."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from clarion.client import ApiError, Clarion, Inbox, Update, sign_user_token

# Enough for a server that starts on a busy machine.
ATTEMPTS = 10


class Driver:
    """The commands, each a method."""

    def __init__(self, url: str, api_key: str, app_id: str, secret: str) -> None:
        self._url = url
        self._app_id = app_id
        self._secret = secret
        self._clarion = Clarion(url, api_key=api_key, attempts=ATTEMPTS)
        self._inboxes: dict[str, Inbox] = {}
        self._updates: dict[str, Iterator[Update]] = {}

    def put_user(self, user: str) -> Any:
        return self._clarion.put_user(user, {})

    def send(self, event: dict[str, Any], key: str | None = None) -> Any:
        type_name, fields = split(event)
        return self._clarion.send(type_name, **fields, idempotency_key=key)

    def explain(self, event: dict[str, Any]) -> Any:
        type_name, fields = split(event)
        return self._clarion.explain(type_name, **fields)

    def get(self, name: str, id: str) -> Any:  # noqa: A002 - the name in all languages
        return getattr(self._clarion, name)(id)

    def explained_preferences(self, user: str) -> Any:
        return self._inbox(user).preferences(explain=True)

    def send_batch(self, events: list[dict[str, Any]]) -> Any:
        return self._clarion.send_batch(events)

    def publish(self, topic: str, message: str, **fields: Any) -> Any:
        return self._clarion.publish(topic, message, **fields)

    def watch(self, user: str, after: int | None = None) -> None:
        self._updates[user] = self._inbox(user).updates(after=after)

    def next(self, user: str) -> Update:
        return next(self._updates[user])

    def change_preferences(self, user: str, changes: dict[str, Any]) -> Any:
        return self._inbox(user).change_preferences(changes)

    def list(self, user: str, **filters: Any) -> Any:
        return self._inbox(user).list(**filters)

    def find(self, name: str) -> Callable[..., Any]:
        """Return a method of this class, or one of the inbox that takes an id at most."""
        own = getattr(self, name, None)
        return own or (lambda user, **given: getattr(self._inbox(user), name)(*given.values()))

    def _inbox(self, user: str) -> Inbox:
        def token() -> str:
            return sign_user_token(app_id=self._app_id, user_id=user, secret=self._secret)

        if user not in self._inboxes:
            self._inboxes[user] = Inbox(self._url, token=token, attempts=ATTEMPTS)
        return self._inboxes[user]


def split(event: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of an event, and the rest as Python names it."""
    fields = {name: value for name, value in event.items() if name != "type"}
    return event["type"], {"to": fields.pop("recipient"), **fields}


def answer(driver: Driver, command: dict[str, Any]) -> dict[str, Any]:
    name = command.pop("do")
    try:
        return {"ok": driver.find(name)(**command)}
    except ApiError as error:
        fields = [each.field for each in error.errors]
        return {"error": {"status": error.status, "code": error.code, "fields": fields}}


def main() -> None:
    driver = Driver(*sys.argv[1:])
    for line in sys.stdin:
        sys.stdout.write(msgspec.json.encode(answer(driver, json.loads(line))).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
