"""The pages of the documentation, as the package has them."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

START = "start"
# By the path at which they are served: pages that are not in `docs/`.
_ELSEWHERE = {START: "README.md", "changelog": "CHANGELOG.md"}
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
_SECTIONS = {"how-to": "How to", "reference": "Reference", "why": "How and why it works"}


class Page(NamedTuple):
    """A page: where it is served, its file in the repository, its title and its Markdown."""

    path: str
    source: str
    title: str
    text: str


@cache
def read_pages() -> dict[str, Page]:
    """Return all pages by the path below `/docs/`."""
    package = resources.files("clarion.manual")
    found = {path: _make(path, name, package / name) for path, name in _ELSEWHERE.items()}
    for folder in ("", *_SECTIONS):
        place = package / "docs" / folder if folder else package / "docs"
        for each in sorted(place.iterdir(), key=lambda file: file.name):
            if each.name.endswith(".md"):
                path = f"{folder}/{each.name[:-3]}".lstrip("/")
                found[path] = _make(path, f"docs/{path}.md", each)
    return found


def _make(path: str, source: str, file: Traversable) -> Page:
    text = file.read_text(encoding="utf-8")
    title = _TITLE.search(text)
    return Page(path, source, title[1] if title else path, text)


@cache
def list_sections() -> tuple[tuple[str, tuple[Page, ...]], ...]:
    """Return the pages by section, in the order in which one may want to read them."""
    pages = read_pages()
    first = [pages[path] for path in (START, "quickstart", "concepts", "glossary", "changelog")]
    sections = [("Start", tuple(first))]
    for folder, name in _SECTIONS.items():
        own = [each for each in pages.values() if each.path.startswith(f"{folder}/")]
        sections.append((name, tuple(sorted(own, key=lambda page: page.title.casefold()))))
    return tuple(sections)


def read_image(name: str) -> bytes | None:
    """Return an image of the documentation, or None."""
    images = resources.files("clarion.manual") / "docs" / "images"
    known = {each.name: each for each in images.iterdir() if each.name.endswith(".png")}
    return known[name].read_bytes() if name in known else None
