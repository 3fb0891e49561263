"""The dashboard of a server, in windows of administrators who are signed in."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from playwright._impl._api_structures import SetCookieParam
from playwright.sync_api import Page

from clarion.access.administrators.model import Administrator
from clarion.access.model import Role
from tests.browser.conftest import OpenWindow
from tests.browser.test_inbox_element import find_axe_faults
from tests.e2e import own_server
from tests.e2e.administrators import Browser, make_administrator, sign_in
from tests.e2e.conftest import Server

# Every page is looked at in all of these.
LOOKS = tuple(
    {"color_scheme": scheme, "width": width}
    for scheme in ("light", "dark")
    for width in (390, 1280)
)


@dataclass(frozen=True)
class Dashboard:
    """A server, and its pages of one app."""

    server: Server

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.installation.port}"

    @property
    def app_id(self) -> str:
        app_id: str = self.server.first["app"]["id"]
        return app_id

    def url(self, path: str = "") -> str:
        """Return the URL of a page of the app."""
        return f"{self.origin}/admin/apps/{self.app_id}{path}"

    def make(self, role: Role | None = Role.ADMIN, **more: Any) -> Administrator:
        return make_administrator(self.server.installation, role, **more)

    @cached_property
    def session(self) -> Browser:
        """The session of an administrator, shared by the tests: a sign-in takes a moment."""
        return sign_in(self.server.installation, self.make(username="lea"))

    @property
    def cookies(self) -> list[SetCookieParam]:
        """The cookies of the session, for a window that is opened in another way."""
        return cookies_of(self.session)

    def open(
        self, open_window: OpenWindow, path: str, account: Administrator | None = None, **look: Any
    ) -> Page:
        """Open a page of the app in a window of its own, signed in."""
        session = sign_in(self.server.installation, account) if account else self.session
        window = open_window("about:blank", **look)
        window.page.context.add_cookies(cookies_of(session))
        window.page.goto(self.url(path))
        return window.page


def cookies_of(session: Browser) -> list[SetCookieParam]:
    # For the URL with TLS: Chromium takes no secure cookie for another from outside a page.
    return [
        {"name": name, "value": value, "url": "https://127.0.0.1", "httpOnly": True}
        for name, value in session.cookies.items()
    ]


@contextmanager
def serve(folder: Path, **flags: str) -> Iterator[Dashboard]:
    with own_server.serve(folder, **flags) as server:
        yield Dashboard(server)


def find_faults(page: Page, packages: Path) -> list[Any]:
    """Return what axe finds on the whole page, and whether it is wider than its window."""
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [
        *find_axe_faults(page, packages, "html"),
        *([f"{wide} px too wide"] if wide > 0 else []),
    ]
