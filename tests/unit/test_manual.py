"""The documentation as the server shows it: every page, every link, and the search."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from clarion.errors import InvalidFields, MethodNotAllowed, NotFound
from clarion.http.asgi import Request
from clarion.manual.endpoint import answer
from clarion.manual.pages import list_sections, read_image, read_pages
from clarion.manual.rendering import find_target, render
from clarion.manual.search import search
from tests.unit.test_docs import ROOT

PAGES = sorted(read_pages())


class Links(HTMLParser):
    """The links and images of a page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, _tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.found += [each for each in (given.get("href"), given.get("src")) if each]
        if given.get("id"):
            self.anchors.add(str(given["id"]))


async def ask(path: str, query: str = "", method: str = "GET") -> Any:
    scope = {"method": method, "path": path, "query_string": query.encode(), "headers": []}
    receive: Any = None
    return await answer(Request(scope, receive, "id", None, 0))


def test_all_pages_of_the_repository_are_there_in_one_section() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert {page.source for page in read_pages().values()} == {*files, "README.md", "CHANGELOG.md"}
    listed = [page.path for _, pages in list_sections() for page in pages]
    assert sorted(listed) == PAGES


@pytest.mark.parametrize("path", PAGES)
async def test_every_link_of_a_page_leads_somewhere(path: str) -> None:
    page = await ask(f"/docs/{path}")
    assert page.status == 200
    links = Links(page.body.decode())
    assert "<script" not in page.body.decode()
    for link in links.found:
        target, _, anchor = link.partition("#")
        if target.startswith("/docs/images/"):
            assert read_image(target.removeprefix("/docs/images/"))
        elif target.startswith("/docs/") and target not in {"/docs/errors", "/docs/manual.css"}:
            other = target.removeprefix("/docs/")
            assert other in read_pages(), link
            assert not anchor or anchor in Links(render(other).decode()).anchors, link
        elif not target:
            assert anchor in links.anchors, link
        else:
            assert re.match(r"https?://|/docs$|/docs/|/admin$|mailto:|data:,$", target), link


def test_a_link_out_of_the_documentation_is_no_link() -> None:
    page = read_pages()["why/queue"]
    assert find_target(page, "../how-to/inbox.md#pages") == "/docs/how-to/inbox#pages"
    assert find_target(page, "../../src/clarion/events/model.py") is None
    assert find_target(page, "../../../etc/passwd") is None
    assert find_target(page, "javascript:alert(1)") is None
    assert find_target(page, "https://example.com/") == "https://example.com/"


async def test_the_first_page_is_the_readme_and_md_leads_to_the_same() -> None:
    start = (await ask("/docs/start")).body
    assert b"<h1" in start
    assert (await ask("/docs/")).body == start
    assert (await ask("/docs/how-to/inbox.md")).body == (await ask("/docs/how-to/inbox")).body


@pytest.mark.parametrize(
    "path",
    ["nothing", "../pyproject", "how-to/..", "images/nothing.png", "images/../index", "how-to"],
)
async def test_what_is_no_page_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        await ask(f"/docs/{path}")


async def test_only_reading_is_possible() -> None:
    assert (await ask("/docs/start", method="HEAD")).status == 200
    with pytest.raises(MethodNotAllowed):
        await ask("/docs/start", method="POST")


async def test_images_and_the_style_have_their_types() -> None:
    image = await ask("/docs/images/overview.png")
    assert (b"content-type", b"image/png") in image.headers
    assert image.body.startswith(b"\x89PNG")
    assert (b"content-type", b"text/css; charset=utf-8") in (await ask("/docs/manual.css")).headers


def test_the_best_page_comes_first() -> None:
    for query, path in {
        "quiet hours": "how-to/users-and-preferences",
        "move postgresql": "how-to/move-to-postgresql",
        "Runbook": "how-to/runbook",
        "second factor": "how-to/administrators",
        "CLARION_DATABASE_FILE": "how-to/run-on-postgresql",
    }.items():
        assert path in [each.page.path for each in search(query)][:3], query
    # A comment in a command is no heading.
    assert all(not each.heading.startswith("Believe") for each in search("nginx TLS"))
    assert search("") == search("zzzznothing") == []
    assert len(search("a")) == 20


async def test_what_is_searched_for_is_shown_as_text() -> None:
    page = (await ask("/docs/search", "q=%3Cscript%3Ealert(1)%3C/script%3E")).body.decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    found = (await ask("/docs/search", "q=quiet+hours")).body.decode()
    assert 'href="/docs/how-to/users-and-preferences' in found
    assert 'value="quiet hours"' in found


async def test_a_long_query_is_refused() -> None:
    with pytest.raises(InvalidFields, match="at most 100"):
        await ask("/docs/search", "q=" + "x" * 101)
