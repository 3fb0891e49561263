"""How the shop uses Clarion: everything that it sends there is in this file."""

from __future__ import annotations

from clarion_client import ApiError, Clarion, sign_user_token
from server import Server

# What customers read: a subject and a text for each channel. Values in HTML are escaped.
TEMPLATES = {
    "in_app": ("Order {{ order }}", "Thank you! {{ product }} is on its way."),
    "push": ("Order {{ order }}", "{{ product }} is on its way."),
    "email": (
        "Your order {{ order }}",
        "<p>Hello {{ user.name }}, your {{ product }} is coming.</p>",
    ),
}


class Notifications:
    """All calls of the shop to Clarion. All threads share one client."""

    def set_up(self, server: Server, *, origin: str, mail_port: int) -> None:
        """Connect, and create what is missing."""
        self.url, self._server = server.url, server
        self._clarion = Clarion(server.url, api_key=server.api_key)
        # Pages of the shop may call Clarion, with tokens of users.
        self._request("PATCH", "/v1/app", {"allowed_origins": [origin]})
        # Email goes to the shop's own mail server (mail.py); later, to yours.
        smtp = {"host": "127.0.0.1", "port": mail_port, "security": "none", "from": "tea@shop.test"}
        self._request("PUT", "/v1/providers/email/mail", {"kind": "smtp", "settings": smtp})
        try:
            push = self._request("GET", "/v1/providers/push/web")
        except ApiError as error:
            if error.code != "not_found":
                raise
            push = self._create_type_and_push()
        self.push_key = push["public_key"]

    def _create_type_and_push(self) -> dict[str, str]:
        """Create the type of the shop's events, its texts, and the provider for Web Push."""
        orders = {"display_name": "Orders", "default_channels": [*TEMPLATES]}
        self._request("PUT", "/v1/types/ORDER_PLACED", orders)
        for channel, (subject, body) in TEMPLATES.items():
            template = {"subject": subject, "body": body, "variables": ["order", "product"]}
            self._request("PUT", f"/v1/types/ORDER_PLACED/templates/{channel}", template)
        # Clarion makes a key pair; browsers subscribe with its public key.
        web_push = {"kind": "webpush", "settings": {"subject": "mailto:tea@shop.test"}}
        return self._request("PUT", "/v1/providers/push/web", web_push)

    def add_user(self, user_id: str, *, name: str, email: str) -> None:
        self._clarion.put_user(user_id, {"name": name, "email": email})

    def order_placed(self, user_id: str, order: int, product: str) -> None:
        """Send an event. Clarion decides what to send, and when, by the user's preferences."""
        self._clarion.send(
            "ORDER_PLACED",
            to=user_id,
            data={"order": order, "product": product},
            deeplink="/",
            # If this is called again for the same order, there is still one event.
            idempotency_key=f"{user_id}-{order}",
        )

    def sign_token(self, user_id: str) -> str:
        server = self._server
        return sign_user_token(app_id=server.app_id, user_id=user_id, secret=server.user_secret)

    def _request(self, method: str, path: str, body: object = None) -> dict[str, str]:
        return self._clarion.request(method, path, body, returns=dict)
