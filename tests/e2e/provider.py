"""Pushes to devices as the APNs provider of an app."""

import time
from pathlib import Path
from typing import Any

import jwt

from tests.e2e.asking import Answer
from tests.e2e.conftest import Server


def push(server: Server, device_token: str, text: str = "hello") -> Answer:
    return push_as(server, server.first["app"], device_token, text)


def push_as(server: Server, app: dict[str, Any], device_token: str, text: str = "hello") -> Answer:
    """Push as the provider of an app; its key may be in memory, for one whose file is gone."""
    body = {"aps": {"alert": text}}
    return server.anyone.post(f"/3/device/{device_token}", body, headers=headers_of(app))


def headers_of(app: dict[str, Any]) -> dict[str, str]:
    """Return the headers with which the provider of an app pushes."""
    key = app.get("provider_key") or Path(app["provider_key_path"]).read_bytes()
    claims = {"iss": app["team_id"], "iat": int(time.time())}
    token = jwt.encode(claims, key, "ES256", {"kid": app["key_id"]})
    return {"authorization": f"bearer {token}", "apns-topic": app["bundle_id"]}
