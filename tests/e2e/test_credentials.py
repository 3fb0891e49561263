"""Every operation with every credential that is not valid, or not for the API.

The operations are those of the access matrix, which has all of them.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.e2e.asking import Asker
from tests.e2e.conftest import Server
from tests.e2e.live_clients import InboxUser
from tests.e2e.test_access_matrix import TABLE, Who

EXPIRED_WITHIN_S = 100.0
# Operations that nobody needs a credential for, such as signing in.
OPEN = {each for each, rule in TABLE.items() if rule.who.name == "STRANGER"}


def make_key(server: Server, **more: Any) -> dict[str, Any]:
    made = server.app.post("/v1/keys", {"label": "test", "scopes": ["*"], **more})
    assert made.status == 201, made.body
    key: dict[str, Any] = made.json
    return key


def revoked_key(server: Server) -> str:
    key = make_key(server)
    assert server.app.delete(f"/v1/keys/{key['id']}").status == 200
    return str(key["api_key"])


def expired_key(server: Server) -> str:
    ends = datetime.now(UTC) + timedelta(seconds=1)
    key = str(make_key(server, expires_at=ends.isoformat())["api_key"])
    give_up = time.monotonic() + EXPIRED_WITHIN_S
    while server.with_key(key).get("/v1/caller").status != 401:
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return key


def key_with_another_secret(server: Server) -> str:
    first, second = (make_key(server)["api_key"] for _ in range(2))
    return f"{first.rpartition('_')[0]}_{second.rpartition('_')[2]}"


def sign(server: Server, secret: str | None = None, algorithm: str = "HS256", **more: Any) -> str:
    """Return a token for a user, with the claims that are given changed; None removes one."""
    app = server.first["app"]
    claims = {"sub": "ana", "aud": app["id"], "exp": time.time() + 600, **more}
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given, app["user_secret"] if secret is None else secret, algorithm)


def token_of_an_inactive_user(server: Server) -> str:
    user = InboxUser(server)
    assert server.app.ask("PUT", f"/v1/users/{user.id}", {"status": "inactive"}).status == 201
    return user.token


def provider_token(server: Server) -> str:
    app = server.first["app"]
    key = Path(app["provider_key_path"]).read_bytes()
    claims = {"iss": app["team_id"], "iat": int(time.time())}
    return jwt.encode(claims, key, "ES256", {"kid": app["key_id"]})


def device_secret(server: Server) -> str:
    made = server.app.post("/v1/devices", {"platform": "clarion"})
    assert made.status == 201, made.body
    return str(made.json["secret"])


CREDENTIALS: dict[str, Callable[[Server], str]] = {
    "a revoked key": revoked_key,
    "an expired key": expired_key,
    "a key with the secret of another": key_with_another_secret,
    "the id of a key alone": lambda server: make_key(server)["api_key"].rpartition("_")[0],
    "an expired token": lambda server: sign(server, exp=time.time() - 600),
    "a token of the future": lambda server: sign(server, nbf=time.time() + 300),
    "a token without an end": lambda server: sign(server, exp=None),
    "a token for too long": lambda server: sign(server, exp=time.time() + 10**9),
    "a token without a user": lambda server: sign(server, sub=None),
    "a token of an app that is not there": lambda server: sign(server, aud="nothing"),
    "a token signed by another": lambda server: sign(server, "another secret of 32 characters!"),
    "a token for another app": lambda server: sign(server, aud=server.make_app()["id"]),
    "a token that nobody signed": lambda server: sign(server, "", "none"),
    "a token of another algorithm": lambda server: sign(server, algorithm="HS512"),
    "the token of an inactive user": token_of_an_inactive_user,
    "a token of an APNs provider": provider_token,
    "the secret of a device": device_secret,
}


def ask_all(asker: Asker) -> dict[str, int]:
    """Return the operations that were answered with another status than 401."""
    found = {}
    for operation in TABLE:
        method, path = operation.split()
        body: dict[str, Any] | None = None if method in {"GET", "DELETE"} else {}
        status = asker.ask(method, re.sub(r"\{\w+\}", "x", path), body).status
        if status != 401 and operation not in OPEN:
            found[operation] = status
    return found


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("which", CREDENTIALS)
def test_no_operation_takes_an_invalid_credential(server: Server, which: str) -> None:
    assert ask_all(server.with_key(CREDENTIALS[which](server))) == {}


def test_the_same_credentials_are_taken_if_they_are_valid(server: Server) -> None:
    """Without this the rest would prove nothing."""
    key = make_key(server)["api_key"]
    for credential in (key, sign(server), InboxUser(server).token):
        assert server.with_key(credential).get("/v1/caller").status == 200
    assert {rule.who for rule in TABLE.values()} >= {Who.APP, Who.USER, Who.OWNER}
