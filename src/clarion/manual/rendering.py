"""Pages as HTML: their links lead to the other pages, and HTML in them is shown as it is."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token

from clarion.manual.pages import Page, list_sections, read_pages

_OTHER_HOST = re.compile(r"(?:https?|mailto):", re.IGNORECASE)
_IMAGES = "docs/images/"
# What may be wider than the window can be scrolled by keyboard. In texts these are escaped.
_SCROLLED = {
    "<pre>": '<pre tabindex="0">',
    "<table>": '<div class="wide" tabindex="0"><table>',
    "</table>": "</table></div>",
}


@cache
def render(path: str) -> bytes:
    """Return a page that exists."""
    page = read_pages()[path]
    markdown = _markdown()
    tokens = markdown.parse(page.text)
    _name_headings(tokens)
    for token in tokens:
        if token.children:
            _lead(page, token.children)
    body = markdown.renderer.render(tokens, markdown.options, {})
    for plain, focusable in _SCROLLED.items():
        body = body.replace(plain, focusable)
    return render_frame(page.title, path, "page.html", body=body)


def render_frame(title: str, path: str, template: str, **values: Any) -> bytes:
    """Return a template with the list of all pages next to it."""
    shown = _templates().get_template(template)
    return shown.render(title=title, path=path, sections=list_sections(), **values).encode()


@cache
def _markdown() -> MarkdownIt:
    # HTML in a page would be shown, not run.
    return MarkdownIt("commonmark", {"html": False}).enable("table")


@cache
def _templates() -> Environment:
    loader = PackageLoader("clarion.manual")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)


def name_heading(title: str) -> str:
    """Return the anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _name_headings(tokens: Sequence[Token]) -> None:
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", name_heading(inline.content.replace("`", "")))


def _lead(page: Page, tokens: Sequence[Token]) -> None:
    """Point links and images to where they are served; a link to another file becomes text."""
    is_link = True
    for token in tokens:
        if token.type == "image":
            token.attrSet("src", find_target(page, str(token.attrGet("src"))) or "")
        elif token.type == "link_open":
            target = find_target(page, str(token.attrGet("href")))
            is_link = target is not None
            token.attrs = {"href": target} if target else {}
            token.tag = "a" if is_link else "span"
        elif token.type == "link_close" and not is_link:
            token.tag = "span"


def find_target(page: Page, link: str) -> str | None:
    """Return the target of a link in a page; None if it is a file that is not served."""
    if link.startswith("#") or _OTHER_HOST.match(link):
        return link
    file, _, heading = link.partition("#")
    source = posixpath.normpath(posixpath.join(posixpath.dirname(page.source), file))
    if source.startswith(_IMAGES):
        return f"/{source}"
    path = _paths().get(source)
    return None if path is None else f"/docs/{path}" + (f"#{heading}" if heading else "")


@cache
def _paths() -> dict[str, str]:
    return {page.source: page.path for page in read_pages().values()}
