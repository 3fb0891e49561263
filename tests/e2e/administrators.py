"""Administrators of a running server: made in the store, signed in over HTTP."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from random import randrange
from typing import Any, TypeVar

from clarion.access.administrators import totp
from clarion.access.administrators.keys import issue_admin_key
from clarion.access.administrators.model import Administrator, SetupLink, hash_token, new_token
from clarion.access.administrators.passwords import hash_password
from clarion.access.administrators.sql.stores import AdminStores, make_admin_stores
from clarion.access.model import Role
from clarion.clock import SystemClock
from clarion.store.opening import open_engine
from tests.conftest import run_apart
from tests.e2e.asking import Answer, Asker
from tests.e2e.installation import Installation

PASSWORD = "correct horse battery"
T = TypeVar("T")
# Hashing takes a moment, and most tests need no other one.
PASSWORD_HASH = hash_password(PASSWORD)


def make_administrator(
    installation: Installation | str,
    role: Role | None = Role.ADMIN,
    *,
    app_roles: Mapping[str, Role] | None = None,
    **changes: Any,
) -> Administrator:
    """Add an administrator with `PASSWORD` to the store, as if the set-up link had been used.

    The store is that of an installation, or has this address.
    """
    clock = SystemClock()
    values: dict[str, Any] = {
        "id": clock.new_id(),
        "username": f"a-{new_token()[:16].lower()}",
        "password_hash": PASSWORD_HASH,
        "role": role,
        "app_roles": dict(app_roles or {}),
        "created_at": clock.now(),
    }
    account = Administrator(**values | changes)
    link = SetupLink(id=account.id, token_hash=hash_token(new_token()), created_at=0, expires_at=0)
    use_stores(installation, lambda stores: stores.accounts.create(account, link))
    return account


def make_key(
    installation: Installation | str,
    role: Role = Role.ADMIN,
    *,
    app_roles: Mapping[str, Role] | None = None,
    is_for_all_apps: bool = True,
) -> str:
    """Add an administrator with this role and an admin API key to the store; return the key."""
    general = role if is_for_all_apps else None
    account = make_administrator(installation, general, app_roles=app_roles)
    issued = issue_admin_key(
        administrator_id=account.id,
        label="test",
        role=Role.ADMIN,
        now=SystemClock().now(),
        expires_at=None,
    )

    use_stores(installation, lambda stores: stores.keys.create(issued.key))
    return issued.secret.text


def use_stores(installation: Installation | str, use: Callable[[AdminStores], Awaitable[T]]) -> T:
    """Open the store of an installation, or at an address, beside its server, and use it."""
    url = installation if isinstance(installation, str) else installation.database_url

    async def run() -> T:
        engine = await open_engine(url, waiting_limit=100, batch_limit=100, on_broken=print)
        try:
            return await use(make_admin_stores(engine))
        finally:
            await engine.close()

    return run_apart(run())


@dataclass
class Browser:
    """A browser of an administrator: keeps cookies, and sends the token of the session."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)
    csrf_token: str = ""
    secret: str = ""  # of the authenticator app
    last_step: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    # Failures are counted by address: those of one test must not lock out the others.
    address: str = field(default_factory=lambda: f"127.1.{randrange(256)}.{randrange(1, 255)}")

    def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        sent = {
            "Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            "Clarion-CSRF-Token": self.csrf_token,
            **self.headers,
            **(headers or {}),
        }
        answer = Asker(self.port, address=self.address).ask(
            method, path, body, headers={name: value for name, value in sent.items() if value}
        )
        self._keep(answer)
        return answer

    def _keep(self, answer: Answer) -> None:
        for line in answer.set_cookies:
            for name, morsel in SimpleCookie(line).items():
                self.cookies[name] = morsel.value
                if morsel["max-age"] == "0":
                    del self.cookies[name]
        if answer.status in (200, 201) and answer.body.startswith(b"{"):
            found = answer.json.get("session", answer.json)
            self.csrf_token = found.get("csrf_token") or self.csrf_token

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def delete(self, path: str, **more: Any) -> Answer:
        return self.ask("DELETE", path, **more)

    def sign_in(self, username: str, password: str = PASSWORD) -> Answer:
        """Give the password; the stage in the answer says what is missing."""
        return self.post("/v1/admin/session", {"username": username, "password": password})

    def enrol(self) -> list[str]:
        """Set up a second factor, and return the recovery codes."""
        begun = self.post("/v1/admin/totp")
        assert begun.status == 201, begun.body
        self.secret, self.last_step = begun.json["secret"], 0
        done = self.post("/v1/admin/totp/confirm", {"code": self.next_code()})
        assert done.status == 200, done.body
        codes: list[str] = done.json["recovery_codes"]
        return codes

    def next_code(self) -> str:
        """Return a code that was not used, of the current step or the next."""
        self.last_step = max(self.last_step + 1, int(time.time() * 1000) // totp.STEP_MS)
        return self.code_at(self.last_step)

    def code_at(self, step: int) -> str:
        return totp.code_at(totp.decode_secret(self.secret), step)


def sign_in(
    installation: Installation, account: Administrator | None = None, **changes: Any
) -> Browser:
    """Return the browser of an administrator who is signed in, with a second factor if needed."""
    account = account or make_administrator(installation, **changes)
    browser = Browser(installation.port)
    answer = browser.sign_in(account.username)
    assert answer.status == 201, answer.body
    if answer.json["stage"] == "needs_enrolment":
        browser.enrol()
    assert browser.get("/v1/admin/session").json["stage"] == "signed_in"
    return browser
