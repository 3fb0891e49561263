"""The JavaScript client in a page of another origin than Clarion's."""

import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
MODULE = HERE.parents[1] / "clients" / "js" / "clarion.js"
PAGE = '<!doctype html><meta charset="utf-8"><title>Shop</title><link rel="icon" href="data:,">'
FILES = {
    "/": ("text/html", PAGE.encode()),
    "/clarion.js": ("text/javascript", MODULE.read_bytes()),
    "/commands.mjs": ("text/javascript", (HERE / "commands.mjs").read_bytes()),
}
# As a careful shop has it.
POLICY = "default-src 'none'; script-src 'self'; connect-src http://127.0.0.1:*"
LOAD = """async given => {
  const { makeClient } = await import("/commands.mjs");
  window.answer = makeClient(await import("/clarion.js"), given);
}"""


class PageClient:
    """Has the commands of a user done in the page."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def begin(self, do: str, **given: Any) -> Callable[[], Any]:
        """Have something done; call the result to wait for the answer."""
        command = {"do": do, **given}
        self._page.evaluate("command => { window.answered = window.answer(command); }", command)

        def finish() -> Any:
            answer = self._page.evaluate("() => window.answered")
            return answer.get("ok", answer)

        return finish


@contextmanager
def open_page(browser: Browser, origin: str, given: dict[str, str]) -> Iterator[PageClient]:
    """Open a page in which the client is ready."""
    page = browser.new_context().new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(origin)
    page.evaluate(LOAD, given)
    try:
        yield PageClient(page)
    finally:
        page.context.close()
    assert faults == []


@contextmanager
def serve_pages(
    files: Mapping[str, tuple[str, bytes]] = FILES, policy: str = POLICY
) -> Iterator[str]:
    """Serve files, each with its type, and return the origin."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = files.get(self.path, ("text/plain", b""))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Security-Policy", policy)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
