"""A stand-in for FCM HTTP v1 and for Google's token endpoint, which check what they are given."""

import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.peers.http2 import Http2Peer, Reply, Request

EMAIL = "clarion@example.iam.gserviceaccount.com"
PROJECT = "example-project"
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIMIT_BYTES = 4096
MESSAGE_FIELDS = {"token", "notification", "data", "android"}
ANDROID_FIELDS = {"priority", "ttl", "collapse_key", "notification"}
STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}


class RefusedError(Exception):
    """The request is answered with this status, code and text."""

    def __init__(self, status: int, code: str, text: str) -> None:
        self.status, self.code, self.text = status, code, text
        super().__init__(text)


def make_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def pem_of(key: rsa.RSAPrivateKey) -> str:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()


@dataclass
class FcmPeer:
    """Both endpoints. `answers` names what is answered for a device token."""

    key: rsa.RSAPrivateKey = field(default_factory=make_key)
    expires_in: int = 3600
    issued: list[str] = field(default_factory=list)  # access tokens, those valid and not
    valid: set[str] = field(default_factory=set)
    messages: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Reply] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.http = Http2Peer(self.handle)

    def service_account(self, **changes: str) -> str:
        account = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "key-1",
            "private_key": pem_of(self.key),
            "client_email": EMAIL,
            "token_uri": f"{self.http.url}/token",
        }
        return json.dumps(account | changes)

    def revoke(self) -> None:
        """No access token that was issued so far is valid any more."""
        self.valid.clear()

    def handle(self, request: Request) -> Reply:
        try:
            if request.path == "/token":
                return self._issue(request)
            return self._send(request)
        except RefusedError as refused:
            if request.path == "/token":
                return refuse_token(refused.status, refused.code, refused.text)
            return refuse(refused.status, STATUSES[refused.status], refused.code, refused.text)

    def _issue(self, request: Request) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        if form.get("grant_type") != GRANT:
            raise RefusedError(400, "unsupported_grant_type", "Invalid grant_type")
        self._check_assertion(form["assertion"])
        token = f"ya29.{len(self.issued)}-{'x' * 100}"
        self.issued.append(token)
        self.valid.add(token)
        granted = {"access_token": token, "expires_in": self.expires_in, "token_type": "Bearer"}
        return Reply(
            headers={"content-type": "application/json"}, body=json.dumps(granted).encode()
        )

    def _check_assertion(self, assertion: str) -> None:
        try:
            claims = jwt.decode(
                assertion,
                self.key.public_key(),
                algorithms=["RS256"],
                audience=f"{self.http.url}/token",
                issuer=EMAIL,
                leeway=300,
                options={"require": ["iss", "scope", "aud", "iat", "exp"]},
            )
        except jwt.InvalidTokenError as error:
            raise RefusedError(400, "invalid_grant", f"Invalid JWT: {error}") from error
        is_short = claims["exp"] - claims["iat"] <= 3600 and abs(claims["iat"] - time.time()) < 300
        if not is_short or jwt.get_unverified_header(assertion)["kid"] != "key-1":
            raise RefusedError(400, "invalid_grant", "Invalid JWT: not a short-lived token")
        if claims["scope"] != SCOPE:
            raise RefusedError(400, "invalid_scope", "Invalid OAuth scope")

    def _send(self, request: Request) -> Reply:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            raise RefusedError(401, "", "Request had invalid authentication credentials.")
        if request.path != f"/v1/projects/{PROJECT}/messages:send":
            return Reply(status=404, body=b"<html>Not Found</html>")
        body = json.loads(request.body)
        if body.get("validate_only"):
            return Reply(body=json.dumps({"name": f"projects/{PROJECT}/messages/fake"}).encode())
        message = body["message"]
        check_message(message)
        if message["token"] in self.answers:
            return self.answers[message["token"]]
        self.messages.append(message)
        name = f"projects/{PROJECT}/messages/0:{len(self.messages)}"
        return Reply(body=json.dumps({"name": name}).encode())


def check_message(message: dict[str, Any]) -> None:
    """Check a message as FCM does: its fields, texts only in `data`, and its size."""
    data, shown = message.get("data", {}), message.get("notification", {})
    unknown = (message.keys() - MESSAGE_FIELDS) | (message["android"].keys() - ANDROID_FIELDS)
    if unknown:
        raise RefusedError(400, "INVALID_ARGUMENT", f"Unknown name {sorted(unknown)}")
    if not all(isinstance(value, str) for value in (*data.values(), *shown.values())):
        raise RefusedError(400, "INVALID_ARGUMENT", "Invalid value at 'message.data'")
    if any(name in {"from", "gcm", "message_type"} or name.startswith("google") for name in data):
        raise RefusedError(400, "INVALID_ARGUMENT", "Invalid data payload key")
    size = len(json.dumps([data, shown], ensure_ascii=False, separators=(",", ":")).encode())
    if size > LIMIT_BYTES:
        raise RefusedError(400, "INVALID_ARGUMENT", "Message is too big")


def refuse(status: int, name: str, code: str = "", text: str = "", **headers: str) -> Reply:
    """Answer a message with an error, as FCM does."""
    kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
    details = [{"@type": kind, "errorCode": code}] if code else []
    error = {"code": status, "message": text, "status": name, "details": details}
    given = {each.replace("_", "-"): value for each, value in headers.items()}
    return Reply(status=status, headers=given, body=json.dumps({"error": error}).encode())


def refuse_token(status: int, code: str, text: str = "", **headers: str) -> Reply:
    """Answer a request for a token with an error, as Google does."""
    body = json.dumps({"error": code, "error_description": text}).encode()
    return Reply(status=status, headers=headers, body=body)
