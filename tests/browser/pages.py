"""A web server of another origin than Clarion's, whose pages have a strict policy."""

import http.server
import threading
import uuid
from typing import Any, Self


class PageServer:
    """Serves pages that load the component from Clarion."""

    def __init__(self, api: str) -> None:
        self.api = api
        pages: dict[str, bytes] = {}
        # As strict as a careful application has it: scripts and requests to Clarion alone.
        policy = (
            f"default-src 'none'; script-src {api}; connect-src {api}; img-src 'self' data:; "
            "style-src 'none'; base-uri 'none'; form-action 'none'"
        )

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy", policy)
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *_given: Any) -> None:
                pass

        self._pages = pages
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def show(self, body: str, *, path: str | None = None) -> str:
        """Serve a page, and return its URL."""
        path = path or f"/{uuid.uuid4().hex}"
        page = (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Shop</title>'
            '<link rel="icon" href="data:,">'
            f'<script type="module" src="{self.api}/static/clarion-inbox.js"></script></head>'
            f"<body><main><h1>Shop</h1>{body}</main></body></html>"
        )
        self._pages[path] = page.encode()
        return self.origin + path
