"""Every path, command, flag, metric and file that a page names is one that the program has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cyclopts import App

from clarion.cli.main import app
from clarion.http.openapi import PATH
from clarion.settings import describe
from tests.conftest import run_apart
from tests.in_process import opened_front
from tests.unit.test_docs import ROOT, commands, metric_names, project_files
from tests.unit.test_docs import page as page_of

pytestmark = pytest.mark.filterwarnings("ignore::litestar.exceptions.LitestarDeprecationWarning")
SOURCE = ROOT / "src" / "clarion"
# What the changelog says is coming is not there yet.
COMING = re.compile(r"^#+ Coming.*", re.MULTILINE | re.DOTALL | re.IGNORECASE)
CALL = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE|HEAD) (/[\w{}./:…@~$-]*)")
# Not in the OpenAPI document: other protocols, pages, and a receiver of webhooks in an example.
OTHERS = re.compile(r"/[134]/|/admin/|/clarion$|/v1/me/socket$|/v1/test/clock$")
INVOCATION = re.compile(r"(?:^|`|bin/)clarion((?: [a-z][a-z-]+)+)([^`|;&#\n]*)", re.MULTILINE)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
INLINE = re.compile(r"`([^`\n]+)`")
METRIC = re.compile(r"\b(?:clarion|apns)_[a-z_]+[a-z]\b")
FILE = re.compile(r"`((?:\.?[\w-]+/)+[\w.-]+\.\w+)`")
# Words that begin like the name of a metric.
NO_METRICS = {
    f"clarion_{name}" for name in ("restored", "gateway", "api", "client", "token", "url", "app")
}
# Made where Clarion is used.
MADE = ("data/", "backups/", "dist/", "mysite/")


def pages() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md" and "tests" not in path.parts]


def read(path: Path) -> str:
    """Return a page with the lines of each command joined."""
    return COMING.sub("", path.read_text()).replace("\\\n", " ")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """The method and path of every operation."""

    async def ask() -> set[tuple[str, str]]:
        async with opened_front(tmp_path_factory.mktemp("served")) as (front, _services):
            request: Any = None
            answer: Any = await front.fast_routes["GET", PATH](request)
            paths = msgspec.json.decode(answer.body)["paths"]
            listed = {(name.upper(), path) for path, each in paths.items() for name in each}
            return listed | set(front.fast_routes)

    return run_apart(ask())


def is_served(method: str, path: str, served: set[tuple[str, str]]) -> bool:
    """Whether a path is one of these; what a page leaves to the reader stands for anything."""
    # In a command an id follows: POST /v1/events/$ID.
    asked = re.sub(r"/$", "/…", path.rstrip(".")).split("/")
    return path == "/" or any(
        method == known and len(asked) == len(parts := template.split("/")) and fits(asked, parts)
        for known, template in served
    )


def fits(asked: list[str], parts: list[str]) -> bool:
    return all(
        part == given or part.startswith("{") or given.startswith(("…", "{", "$"))
        for given, part in zip(asked, parts, strict=True)
    )


def test_every_path_that_a_page_names_is_served(served: set[tuple[str, str]]) -> None:
    named = [(page, *call) for page in pages() for call in CALL.findall(read(page))]
    assert len(named) > 300
    assert [
        f"{page.relative_to(ROOT)}: {method} {path}"
        for page, method, path in named
        if not OTHERS.match(path) and not is_served(method, path, served)
    ] == []


def test_a_path_that_is_not_served_is_found(served: set[tuple[str, str]]) -> None:
    assert is_served("POST", "/v1/events/{id}/replay", served)
    assert is_served("GET", "/v1/events/", served)
    assert not is_served("POST", "/v1/events/{id}/cancel", served)
    assert not is_served("PUT", "/v1/events/{id}", served)


def list_flags(of: App) -> set[str]:
    """Return the flags of a command and of those under it, and of every other."""
    own = set[str]()
    if of.default_command is not None:
        own = {name for each in of.assemble_argument_collection() for name in each.names}
    names = [name for name in of if not name.startswith("-")]
    return own.union(*(list_flags(of[name]) for name in names))


def find_wrong_commands(text: str) -> Iterator[str]:
    """Yield the commands of a page that there are not, or that have no such flag."""
    known = {each.removeprefix("clarion ") for each in commands(app)}
    groups = {" ".join(each.split()[:count]) for each in known for count in (1, 2, 3)}
    common = {flag for flag, *_ in describe()} | {"--help", "--config", "--version"}
    for words, rest in INVOCATION.findall(text):
        named = words.split()
        longest = next((n for n in (3, 2, 1) if " ".join(named[:n]) in groups), 0)
        name = " ".join(named[:longest])
        if not longest or (name not in known and len(named) > longest):
            yield f"clarion{words}"
            continue
        command = app
        for each in named[:longest]:
            command = command[each]
        has = common | list_flags(command)
        yield from (f"clarion {name} {flag}" for flag in FLAG.findall(rest) if flag not in has)


def test_every_command_that_a_page_names_is_there_with_its_flags() -> None:
    named = [each for page in pages() for each in INVOCATION.findall(read(page))]
    assert len(named) > 150
    assert [
        f"{page.relative_to(ROOT)}: {wrong}"
        for page in pages()
        for wrong in find_wrong_commands(read(page))
    ] == []


def test_a_command_that_is_not_there_is_found() -> None:
    assert list(find_wrong_commands("`clarion doctor`, `clarion app list --data data`")) == []
    assert list(find_wrong_commands("`clarion docter`")) == ["clarion docter"]
    assert list(find_wrong_commands("`clarion app lst`")) == ["clarion app lst"]
    assert list(find_wrong_commands("clarion serve --lisen x")) == ["clarion serve --lisen"]


def test_every_flag_in_a_sentence_is_one_of_a_program_here() -> None:
    known = list_flags(app) | {flag for flag, *_ in describe()}
    sources = [*ROOT.glob("bench/*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("tests/**/run.py")]
    sources += [ROOT / "Makefile", *ROOT.glob("clients/js/*.js"), *ROOT.glob(".ci/*")]
    texts = "\n".join(path.read_text() for path in sources)
    prose = {page: re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL) for page in pages()}
    assert [
        f"{page.relative_to(ROOT)}: {flag}"
        for page, text in prose.items()
        for code in INLINE.findall(text)
        for flag in FLAG.findall(code)
        # Otherwise it is of another program, whose name stands before it.
        if code.startswith(flag) and flag not in known and flag not in texts
    ] == []


def test_every_metric_that_a_page_names_is_counted() -> None:
    listed = set(METRIC.findall(page_of("metrics.md")))
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    counted = metric_names()
    named = {(page, name) for page in pages() for name in METRIC.findall(read(page))}
    assert len(named) > 100
    assert [
        f"{page.relative_to(ROOT)}: {name}"
        for page, name in sorted(named)
        if name not in NO_METRICS and not {name, re.sub(r"_(bucket|sum|count)$", "", name)} & listed
    ] == []
    # Some are counted only where there are several nodes, or Redis.
    assert (
        [
            name
            for name in listed
            if METRIC.fullmatch(name)
            and name not in counted
            and f'"{name.removesuffix("_total")}' not in source
            # Made of a prefix and the names of a table.
            and f'"{"_".join(name.split("_")[:2])}_{{' not in source
        ]
        == []
    )


def test_every_file_that_a_page_names_is_there() -> None:
    named = {(page, file) for page in pages() for file in FILE.findall(read(page))}
    assert len(named) > 100
    assert [
        f"{page.relative_to(ROOT)}: {file}"
        for page, file in sorted(named)
        if not file.startswith(MADE)
        and f'title="{file}"' not in read(page)  # the reader makes it
        and not any((root / file).exists() for root in (ROOT, SOURCE, page.parent))
    ] == []
