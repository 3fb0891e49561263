"""Pushes to devices as the APNs provider of the first app."""

import time
from pathlib import Path

import jwt

from tests.e2e.asking import Answer
from tests.e2e.conftest import Server


def push(server: Server, device_token: str, text: str = "hello") -> Answer:
    app = server.first["app"]
    key = Path(app["provider_key_path"]).read_bytes()
    claims = {"iss": app["team_id"], "iat": int(time.time())}
    token = jwt.encode(claims, key, "ES256", {"kid": app["key_id"]})
    headers = {"authorization": f"bearer {token}", "apns-topic": app["bundle_id"]}
    return server.anyone.post(
        f"/3/device/{device_token}", {"aps": {"alert": text}}, headers=headers
    )
